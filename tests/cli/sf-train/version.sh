sf-train --version
sf-train --version --format json
