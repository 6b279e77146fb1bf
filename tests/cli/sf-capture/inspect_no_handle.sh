echo 'no handle' >file
sf-capture inspect file
