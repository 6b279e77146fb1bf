# Completion of sf-init for bash; made by 'sf-init --completion bash'.
_sf_init() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=
  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
    COMPREPLY=($(compgen -W 'model draft lora' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    model)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --dtype) COMPREPLY=($(compgen -W 'fp32 bf16 fp16' -- "$cur")); return ;;
        --tied-from) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        --shard-bytes) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --dtype --tied-from --strict --ranks --shard-bytes --resume --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    draft)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --data) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --draft-vocab) COMPREPLY=(); return ;;
        --from) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --dtype) COMPREPLY=($(compgen -W 'fp32 bf16' -- "$cur")); return ;;
        --seed) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.reference_quirks= capture.max_length= draft.vocab_size= draft.layers= draft.hidden_layers= draft.norm_before_residual= draft.block_size= draft.sliding_window= draft.conv_kernel_size= draft.conv_group_size= draft.selector_rank= draft.selector_top_k= draft.markov_rank= draft.markov_head_type= draft.confidence_head= draft.confidence_head_with_markov= draft.emb_dim= draft.gru_hidden_dim= draft.pure_draft_prefix_len= draft.shift_label= draft.mask_token_id= draft.fc_norm= draft.init= draft.seed=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --data --output --draft-vocab --from --dtype --seed --reference-quirks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    lora)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --rank) COMPREPLY=(); return ;;
        --alpha) COMPREPLY=(); return ;;
        --targets) COMPREPLY=(); return ;;
        --experts) COMPREPLY=(); return ;;
        --dtype) COMPREPLY=($(compgen -W 'fp32 bf16' -- "$cur")); return ;;
        --seed) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'lora.rank= lora.alpha= lora.scaling= lora.targets= lora.exclude= lora.experts= lora.rank_pattern= lora.alpha_pattern= lora.seed=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --rank --alpha --targets --experts --dtype --seed --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
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
complete -o filenames -o nosort -F _sf_init sf-init
