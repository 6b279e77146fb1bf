sf-init draft eagle3 --target t --set draft.layers=[1,2] -o out
