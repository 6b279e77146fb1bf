sf-init model nowhere -o out
rc=$?
ls
exit $rc
