# Completion of sf-eval for bash; made by 'sf-eval --completion bash'.
_sf_eval() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=
  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
    COMPREPLY=($(compgen -W 'accept checkpoints compare generate merge report score watch' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    accept)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --prompts) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --limit) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'target.compute_dtype= target.threads= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= speculation.draft_tokens= speculation.tree_nodes= speculation.tree_width= speculation.least_confidence=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --draft --prompts --limit --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    checkpoints)
      case $prev in
        --questions) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --samples) COMPREPLY=(); return ;;
        --rule) COMPREPLY=(); return ;;
        --pattern) COMPREPLY=(); return ;;
        --nth) COMPREPLY=(); return ;;
        --shard) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'target.compute_dtype= target.threads= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= eval.samples= eval.system= eval.prompt= eval.thinking=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--questions --output --target --samples --rule --pattern --allow-unfinished --last-number --nth --shard --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    compare)
      case $prev in
        --against) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --fail-under) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--against --fail-under --repair --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    generate)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --adapter) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --questions) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --samples) COMPREPLY=(); return ;;
        --limit) COMPREPLY=(); return ;;
        --shard) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'comm.group= comm.interface= comm.meet= comm.join_deadline_s= target.compute_dtype= target.threads= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= eval.samples= eval.system= eval.prompt= eval.thinking= speculation.draft_tokens= speculation.tree_nodes= speculation.tree_width= speculation.least_confidence=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --adapter --questions --draft --samples --limit --shard --output --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    merge)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    report)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --before) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --after) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --step) COMPREPLY=(); return ;;
        --against) COMPREPLY=(); return ;;
        --rule) COMPREPLY=(); return ;;
        --of) COMPREPLY=(); return ;;
        --fail-under) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --before --after --trace --step --against --rule --of --fail-under --repair --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    score)
      case $prev in
        --questions) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --rule) COMPREPLY=(); return ;;
        --pattern) COMPREPLY=(); return ;;
        --shard) COMPREPLY=(); return ;;
        --explain) COMPREPLY=(); return ;;
        --fail-under) COMPREPLY=(); return ;;
        --label) COMPREPLY=(); return ;;
        --step) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--questions --rule --pattern --allow-unfinished --last-number --partial --repair --shard --explain --fail-under --verl --label --step --again --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    watch)
      case $prev in
        --questions) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --samples) COMPREPLY=(); return ;;
        --rule) COMPREPLY=(); return ;;
        --pattern) COMPREPLY=(); return ;;
        --idle) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'target.compute_dtype= target.threads= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= eval.samples= eval.system= eval.prompt= eval.thinking=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--questions --output --target --samples --rule --pattern --allow-unfinished --last-number --idle --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    *)
      case $prev in
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--format --help --version --build-info --completion'
      ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}
complete -o filenames -o nosort -F _sf_eval sf-eval
