# A full disk on stdout is an error, not silence.
sf-train --help >/dev/full
