sf-init model hf --dtype bf61 -o out
