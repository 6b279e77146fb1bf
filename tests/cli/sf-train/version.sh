sf-train --version
