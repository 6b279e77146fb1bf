sf-train --no-such
