# Completion of sf-capture for bash; made by 'sf-capture --completion bash'.
_sf_capture() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=
  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
    COMPREPLY=($(compgen -W 'features regenerate inspect' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    features)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --data) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --import) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --reuse) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --rejected) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --handle-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --synthetic) COMPREPLY=(); return ;;
        --n) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.host_resident= shard.host_dir= target.compute_dtype= target.threads= capture.feature_dtype= capture.max_length= capture.mask_rule= capture.selftest_rows= capture.cache_mib= stream.credit_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= stream.stop_deadline_s= stream.bind= stream.encrypt= data.order_seed=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --draft --data --import --output --reuse --rejected --handle-file --host-resident --synthetic --n --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    regenerate)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --prompts) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --limit) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'comm.group= comm.interface= comm.meet= comm.join_deadline_s= target.compute_dtype= target.threads= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --prompts --output --limit --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    inspect)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'capture.max_length= capture.mask_rule=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--rows --mask --target --html --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
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
complete -o filenames -o nosort -F _sf_capture sf-capture
