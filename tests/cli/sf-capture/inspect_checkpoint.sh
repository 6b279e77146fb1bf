mkdir target
echo '{}' >target/manifest.json
sf-capture inspect target
