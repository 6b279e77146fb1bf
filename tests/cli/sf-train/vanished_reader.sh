# The reader of a pipe that leaves early is an I/O error, and no death by SIGPIPE.
exec 3> >(exec true)
sleep 0.3
sf-train --version >&3
