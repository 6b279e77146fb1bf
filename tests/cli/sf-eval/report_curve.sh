# A recorded curve.
cd "$SF_SOURCE/man/examples" && sf-eval report -q aime/curve.csv --of 30 -o "$TMPDIR/curve.html" && ls "$TMPDIR"
sf-eval report -q aime/curve.csv --of 29; echo "status $?"
cd "$TMPDIR" || exit
# A header that says one thing twice, a step that is none or has two originals.
bad() { printf "$1" >odd.csv; sf-eval report -q odd.csv --of 2; echo "status $?"; }
bad 'step,step,reward\n0,0,0\n'
bad 'step,reward,accuracy\n0,0,1\n'
bad 'step,reward\n0.5,0\n'
bad 'step,reward\n0,0\n0,1\n'
bad 'step,reward,again\n0,0,0\n0,1,2\n'
bad '\xef\xbb\xbfstep,reward\r\n0,0\r\n' | grep -c step
