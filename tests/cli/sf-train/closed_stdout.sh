sf-train --version >&-
