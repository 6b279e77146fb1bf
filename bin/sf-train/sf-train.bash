# Completion of sf-train for bash; made by 'sf-train --completion bash'.
_sf_train() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=
  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
    COMPREPLY=($(compgen -W 'eagle3 dflash dflash2 dspark domino peagle sft grpo' -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    eagle3)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    dflash)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    dflash2)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    dspark)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    domino)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    peagle)
      case $prev in
        --draft) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --from) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tee) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --host-resident) COMPREPLY=(); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= stream.credit_mib= stream.low_mib= stream.cap_mib= stream.report_s= stream.heartbeat_s= stream.rejoin_deadline_s= eval.interval= eval.held_prompts= eval.limit= eval.draft_tokens= eval.max_new_tokens= eval.batch= eval.deadline_s=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--draft --from --output --target --resume --tee --host-resident --reference-quirks --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    sft)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --data) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --adapter) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= capture.max_length= capture.mask_rule= data.order_seed=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --data --adapter --output --resume --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
      ;;
    grpo)
      case $prev in
        --target) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --adapter) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --questions) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --held) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --rollout) COMPREPLY=(); return ;;
        --rule) COMPREPLY=(); return ;;
        --pattern) COMPREPLY=(); return ;;
        --reward) COMPREPLY=(); return ;;
        -o|--output) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --resume) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --ranks) COMPREPLY=(); return ;;
        -c|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --set) COMPREPLY=($(compgen -W 'training.learning_rate= training.schedule= training.warmup_ratio= training.max_grad_norm= training.weight_decay= training.beta1= training.beta2= training.eps= training.batch_size= training.last_window= training.micro_batches= training.epochs= training.total_steps= training.max_steps= training.seed= training.checkpoint_every= training.keep_checkpoints= training.best= training.log_every= training.trace_every= training.max_bad_steps= training.unroll= training.lk_loss_type= training.kl_scale= training.kl_decay= training.num_anchors= training.loss_decay_gamma= training.loss_type= training.dpace_alpha= training.dspark_ce_loss_alpha= training.dspark_l1_loss_alpha= training.dspark_confidence_head_alpha= training.lambda_base_start= training.lambda_base_decay_ratio= training.dflash2_selector_loss_alpha= training.dflash2_selector_warmup_ratio= training.dflash2_selector_ramp_ratio= training.dflash2_selector_stop_gradient= training.num_depths= training.down_sample_ratio= training.down_sample_ratio_min= training.shard_frozen_tables= training.adapter_dtype= training.reference_quirks= engine.device= engine.kernels= engine.threads= engine.mode= engine.memory= engine.compute_dtype= engine.numerics= engine.accumulate= engine.prefetch= engine.poison= engine.call_deadline_s= comm.group= comm.interface= comm.meet= comm.join_deadline_s= shard.backend= shard.replicas= shard.reshard= shard.frozen_tables= shard.host_resident= shard.host_dir= shard.wrap= target.compute_dtype= data.order_seed= generate.max_new_tokens= generate.batch= generate.temperature= generate.top_k= generate.top_p= generate.min_p= generate.repetition_penalty= generate.seed= generate.stop= generate.stop_ids= generate.ignore_eos= eval.samples= eval.system= eval.prompt= eval.thinking= grpo.prompts= grpo.responses= grpo.dynamic_sampling= grpo.mini_batch= grpo.token_budget= grpo.advantage= grpo.loss= grpo.aggregation= grpo.factor= grpo.clip_low= grpo.clip_high= grpo.clip_dual= grpo.kl_coef= grpo.kl= grpo.old_log_probs= grpo.correction= grpo.correction_level= grpo.rejection= grpo.rejection_bounds= grpo.right= grpo.wrong= grpo.reward_deadline_s= grpo.reward_restarts= grpo.overlong_buffer= grpo.overlong_factor= grpo.eval_every= grpo.keep_rollouts= planned.sampler_ranks= planned.device_graphs= planned.sampler_draft= planned.sampler_draft_tokens=' -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W 'text json' -- "$cur")); return ;;
        --progress) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
        --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
      esac
      options='--target --adapter --questions --held --rollout --rule --pattern --last-number --allow-unfinished --reward --output --resume --ranks --config --set --print-config --plan --format --progress --quiet --verbose --help --version --build-info --completion'
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
complete -o filenames -o nosort -F _sf_train sf-train
