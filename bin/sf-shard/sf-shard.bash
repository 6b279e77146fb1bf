# Completion of sf-shard for bash; made by 'sf-shard --completion bash'.
_sf_shard() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=
  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
    COMPREPLY=($(compgen -W 'plan inspect verify diff reshard merge export import' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    plan)
      case $prev in
        --ranks) COMPREPLY=(); return ;;
        --memory) COMPREPLY=(); return ;;
        --bandwidth) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.wrap= target.compute_dtype= capture.feature_dtype= capture.max_length= stream.credit_mib= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= eval.samples= draft.vocab_size= draft.hidden_layers= draft.block_size= draft.conv_kernel_size= draft.conv_group_size= draft.selector_rank= draft.selector_top_k= draft.markov_rank= draft.markov_head_type= draft.confidence_head= draft.confidence_head_with_markov= draft.emb_dim= draft.gru_hidden_dim= draft.pure_draft_prefix_len= draft.shift_label= lora.rank= lora.alpha= lora.scaling= lora.targets= lora.exclude= lora.experts= lora.rank_pattern= lora.alpha_pattern= lora.seed= grpo.prompts= grpo.responses= grpo.dynamic_sampling= grpo.mini_batch= grpo.token_budget= grpo.advantage= grpo.loss= grpo.aggregation= grpo.factor= grpo.clip_low= grpo.clip_high= grpo.clip_dual= grpo.kl_coef= grpo.kl= grpo.old_log_probs= grpo.correction= grpo.correction_level= grpo.rejection= grpo.rejection_bounds= grpo.right= grpo.wrong= grpo.reward_deadline_s= grpo.reward_restarts= grpo.overlong_buffer= grpo.overlong_factor= grpo.eval_every= grpo.keep_rollouts= plan.algorithm= plan.target= plan.draft= plan.memory= plan.bandwidth= planned.sampler_ranks= planned.device_graphs= planned.sampler_draft= planned.sampler_draft_tokens=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--ranks --memory --bandwidth --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    inspect)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--digests --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    verify)
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
    diff)
      case $prev in
        --ulp) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--ulp --values --output --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    reshard)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --shard-bytes) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --shard-bytes --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    merge)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --target --keep --undo --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    export)
      case $prev in
        --to) COMPREPLY=($(compgen -W 'hf peft sglang vllm' -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --dtype) COMPREPLY=($(compgen -W 'fp32 bf16 fp16' -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--to --output --dtype --target --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    import)
      case $prev in
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --draft-config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --dtype) COMPREPLY=($(compgen -W 'fp32 bf16 fp16' -- "$cur")); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--output --target --draft-config --dtype --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
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
complete -o filenames -o nosort -F _sf_shard sf-shard
