sf-eval report nowhere
