// SPDX-License-Identifier: Apache-2.0
// The table. Order is the order of shardforge.toml(5); a key is here only if some room applies it.
#include <limits>

#include "config/settings.h"

namespace sf::config {
namespace {

constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kMostInt = 9007199254740992.0;  // 2^53: every whole number up to it is a double

Key flag(const char* name, bool otherwise, const char* doc) {
  return {.name = name, .type = Key::Type::kBool, .otherwise = otherwise, .doc = doc};
}
Key whole(const char* name, int64_t otherwise, double min, double max, const char* doc) {
  return {.name = name, .type = Key::Type::kInt, .otherwise = otherwise, .min = min, .max = max, .doc = doc};
}
Key real(const char* name, double otherwise, double min, double max, const char* doc) {
  return {.name = name, .type = Key::Type::kFloat, .otherwise = otherwise, .min = min, .max = max, .doc = doc};
}
Key word(const char* name, const char* otherwise, std::vector<std::string> choices, const char* doc) {
  return {.name = name, .type = Key::Type::kString, .otherwise = otherwise, .choices = std::move(choices), .doc = doc};
}
Key words(const char* name, const char* doc) {
  return {.name = name, .type = Key::Type::kStringList, .otherwise = Json::array(), .doc = doc};
}
Key numbers(const char* name, double min, double max, const char* doc) {
  return {.name = name, .type = Key::Type::kIntList, .otherwise = Json::array(), .min = min, .max = max, .doc = doc};
}

Key table(const char* name, const char* doc) {
  return {.name = name, .type = Key::Type::kTable, .otherwise = Json(""), .doc = doc};
}

void add_training(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          real("training.learning_rate", 1e-4, 0, 1, "peak learning rate of AdamW"),
          word("training.schedule", "cosine", {"cosine", "constant"}, "learning-rate schedule after warm-up"),
          real("training.warmup_ratio", 0.015, 0, 1, "warm-up, as a share of all steps"),
          real("training.max_grad_norm", 0.5, 0, kMost, "clip the global gradient norm to this; 0: no clipping"),
          real("training.weight_decay", 0, 0, 1, "decoupled weight decay of AdamW"),
          real("training.beta1", 0.9, 0, 0.999999, "decay of AdamW's first moment"),
          real("training.beta2", 0.999, 0, 0.9999999, "decay of AdamW's second moment"),
          real("training.eps", 1e-8, 0, 1, "term added to AdamW's denominator"),
          whole("training.batch_size", 1, 1, 4096, "rows in a micro-batch"),
          word("training.last_window", "pad", {"pad", "drop"},
               "positions that fill no last window: the rest weighs nothing (pad), or they are left out"),
          whole("training.micro_batches", 8, 1, 1048576, "micro-batches in a window (one step), all ranks together"),
          real("training.epochs", 1, 0, 1e6, "passes over the data"),
          whole("training.total_steps", 0, 0, kMostInt, "length of the schedule in steps; 0: from the epochs"),
          whole("training.max_steps", 0, 0, kMostInt, "stop after this many steps; 0: at the schedule's end"),
          whole("training.seed", 42, 0, kMostInt, "seed of every random choice of the trainer"),
          whole("training.checkpoint_every", 0, 0, kMostInt, "steps between checkpoints; 0: only the last one"),
          whole("training.keep_checkpoints", 2, 1, 1e6, "how many of the newest checkpoints to keep"),
          word("training.best", "none", {"none", "loss", "acc"},
               "checkpoint that RUN/best names and keeps: of lowest mean loss, or of best acc"),
          whole("training.log_every", 10, 1, 1e9, "steps between lines in the log"),
          whole("training.trace_every", 100, 0, 1e9,
                "steps between those whose spans every rank records, beside the second; 0: none"),
          whole("training.max_bad_steps", 8, 1, 1e6, "give up after this many non-finite steps in a row"),
          whole("training.unroll", 7, 1, 32, "unrolled draft steps (training-time test)"),
          word("training.lk_loss_type", "none", {"none", "alpha", "lambda", "tv"},
               "EAGLE3's loss by acceptance rate: -log of it, a mix with the cross-entropy, or 1 minus it"),
          real("training.kl_scale", 1, 1e-6, 1e6, "lk_loss_type lambda: the cross-entropy weighs kl_scale at rate 0"),
          real("training.kl_decay", 1, 0, 1e6, "lk_loss_type lambda: and exp(-kl_decay rate) times that at a rate"),
          whole("training.num_anchors", 512, 1, 1048576,
                "blocks of a row at most, each behind an anchor drawn by seed"),
          real("training.loss_decay_gamma", 0, 0, 1e6,
               "the n-th label of a block, from 0, weighs exp(-n/gamma); 0: all weigh the same"),
          word("training.loss_type", "dflash",
               {"dflash", "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"},
               "DFlash's slots weigh by decay, or as D-PACE has it by how likely the slots around them are"),
          real("training.dpace_alpha", 0.5, 0, 1, "D-PACE: a slot of probability p counts (1 - alpha) p + alpha"),
          real("training.dspark_ce_loss_alpha", 0.1, 0, 1e6, "DSpark: weight of the cross-entropy"),
          real("training.dspark_l1_loss_alpha", 0.9, 0, 1e6,
               "DSpark: weight of the distance from the target's softmax"),
          real("training.dspark_confidence_head_alpha", 1, 0, 1e6, "DSpark: weight of the confidence's cross-entropy"),
          real("training.lambda_base_start", 1, 0, 1,
               "Domino: share of the uncorrected logits in the loss at the first step"),
          real("training.lambda_base_decay_ratio", 0.5, 0, 1, "Domino: share of the schedule over which it falls to 0"),
          real("training.dflash2_selector_loss_alpha", 1, 0, 1e6, "DFlash2: weight of the selector's cross-entropy"),
          real("training.dflash2_selector_warmup_ratio", 0, 0, 1, "DFlash2: share of the schedule before it counts"),
          real("training.dflash2_selector_ramp_ratio", 0, 0, 1, "DFlash2: share of the schedule over which it rises"),
          flag("training.dflash2_selector_stop_gradient", false, "DFlash2: the selector changes itself alone"),
          whole("training.num_depths", 8, 1, 64, "P-EAGLE: tokens predicted behind one index"),
          real("training.down_sample_ratio", 0.8, 0, 1, "P-EAGLE: share of a row's indices kept from depth to depth"),
          real("training.down_sample_ratio_min", 0.2, 0, 1, "P-EAGLE: least share of a row's indices at any depth"),
          flag("training.shard_frozen_tables", false, "shard frozen tables over the ranks too (fsdp2 only)"),
          word("training.adapter_dtype", "fp32", {"fp32", "bf16"},
               "numbers that an adapter's weights and moments are kept in"),
          flag("training.reference_quirks", false, "reproduce known faults of the reference, to compare with it"),
      });
}

void add_engine(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          word("engine.device", "cpu", {"cpu", "cuda"},
               "where segments are computed; with cuda, shards and optimizer stay in the host's memory"),
          word("engine.kernels", "own", {"own", "plain"},
               "what computes on the CPU; plain: LibTorch's operators, whose memory is not planned"),
          whole("engine.threads", 0, 0, 4096,
                "threads a rank; 0: the CPUs it may use, divided by the ranks on this host"),
          word("engine.mode", "keep", {"keep", "recompute", "offload", "auto"},
               "for backward: keep the graph, rebuild it, or from boundaries in a file; auto: by segment"),
          word("engine.memory", "", {},
               "bytes a rank may use, as 8GiB, within which mode auto chooses; default: the host's"),
          word("engine.compute_dtype", "fp32", {"fp32", "bf16"}, "type of gathered parameters and activations"),
          word("engine.numerics", "exact", {"exact", "fast"},
               "exact: any world size gives the same bits; fast: sums in another order, bounded"),
          word("engine.accumulate", "reduce_each", {"reduce_each", "accumulate_local"},
               "fold each micro-batch, or add up a window on each rank and fold once (numerics fast)"),
          whole("engine.prefetch", 0, 0, 64, "segments that gathers run ahead on a thread, beside folds; 0: no thread"),
          flag("engine.poison", false, "fill released slots with NaN, so that a read of one shows"),
          real("engine.call_deadline_s", 120, 0.1, 86400, "seconds a collective call may wait for a peer"),
          word("comm.group", "auto", {"auto", "single", "shm", "gloo", "nccl"},
               "how ranks talk; auto: shared memory on one host, else Gloo over TCP"),
          word("comm.interface", "", {}, "network interface or own address; empty: the route to rank 0"),
          word("comm.meet", "", {}, "host or address of rank 0; empty: as the launcher says"),
          real("comm.join_deadline_s", 300, 0.1, 86400, "seconds the ranks wait for each other at the start"),
          word("shard.backend", "fsdp2", {"fsdp2", "fsdp1", "replicate"},
               "rule that cuts parameters into intervals; replicate: whole copies"),
          whole("shard.replicas", 1, 1, 4096, "replicas of a replicate x shard mesh (HSDP); divides the ranks"),
          word("shard.reshard", "full", {"full", "grad_op", "none"},
               "what stays gathered: nothing, from forward to backward, or all until a step changes it"),
          word("shard.frozen_tables", "replicate", {},
               "replicate, shard, rows, stream, rows+stream or host for all; or TABLE=RESIDENCY of each"),
          word("shard.host_resident", "", {},
               "frozen parameters of which a host keeps one copy: names or their ends, with commas between"),
          word("shard.host_dir", "/tmp", {},
               "directory on this host for copies of tables of residency host; not given: only if needed"),
          words("shard.wrap", "classes whose modules are groups, the rest one root group; []: every segment is one"),
      });
}

void add_capture(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          word("target.compute_dtype", "fp32", {"fp32", "bf16"}, "type the target computes in"),
          whole("target.threads", 0, 0, 4096, "threads of the target; 0: all CPUs it may use"),
          word("capture.feature_dtype", "bf16", {"bf16", "fp32", "fp8"}, "type the features are carried in; fp8: e4m3"),
          whole("capture.max_length", 2048, 2, 1048576, "tokens kept of a row; what is longer is cut"),
          word("capture.mask_rule", "turn", {"turn", "reference"},
               "what is supervised: the turn, or as the reference does"),
          whole("capture.selftest_rows", 2, 0, 1024, "first rows captured twice and compared; 0: no self-test"),
          whole("capture.cache_mib", 1024, 0, 1048576, "MiB of computed samples kept for later epochs"),
          whole("stream.credit_mib", 256, 1, 1048576,
                "MiB of samples under way to one rank, or waiting at it: asked ahead"),
          whole("stream.low_mib", 128, 0, 1048576, "MiB left of these at which asking ahead goes on"),
          whole("stream.cap_mib", 16384, 0, 1048576,
                "MiB of samples a rank holds at most, a window included; 0: no cap"),
          real("stream.report_s", 30, 0, 86400, "seconds between two lines that explain the pipe; 0: at the end alone"),
          real("stream.heartbeat_s", 1, 0.05, 3600, "seconds between signs of life"),
          real("stream.rejoin_deadline_s", 120, 0, 86400, "seconds to wait for a restarted peer behind a handle file"),
          real("stream.stop_deadline_s", 60, 0.1, 86400, "seconds a stopped producer still serves what was asked"),
          word("stream.bind", "127.0.0.1", {}, "address the producer listens on; beyond loopback it is encrypted"),
          flag("stream.encrypt", false, "encrypt the stream on loopback, too; only holders of its handle are let in"),
          whole("data.order_seed", 42, 0, kMostInt, "seed of the row order of every epoch"),
      });
}

void add_generate(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          whole("generate.max_new_tokens", 512, 1, 1048576, "tokens to generate at most"),
          whole("generate.batch", 8, 1, 64, "sequences decoded together"),
          real("generate.temperature", 0, 0, 100, "soft-max temperature; 0: greedy"),
          whole("generate.top_k", 0, 0, 1e9, "keep the k likeliest tokens; 0: all"),
          real("generate.top_p", 1, 1e-6, 1, "keep the likeliest tokens up to this mass"),
          real("generate.min_p", 0, 0, 1, "drop tokens below this share of the likeliest one's probability"),
          real("generate.repetition_penalty", 1, 0.01, 100, "penalty of tokens seen before; 1: none"),
          whole("generate.seed", 42, 0, kMostInt, "seed of sampling"),
          words("generate.stop",
                "texts that end an answer beside the target's own tokens; what stands before one counts"),
          numbers("generate.stop_ids", 0, 16777216, "token ids that end an answer beside the target's own"),
          flag("generate.ignore_eos", false, "go on to max_new_tokens whatever comes (for timing)"),
          whole("eval.samples", 1, 1, 65536, "answers to each question"),
          word("eval.system", "", {}, "system prompt; empty: none"),
          word("eval.prompt", "{problem}", {}, "what is sent of a question; {problem} stands for its text"),
          word("eval.thinking", "template", {"template", "on", "off"},
               "enable_thinking of the chat template; template: not given, as it sees fit"),
          whole("eval.interval", 0, 0, kMostInt,
                "steps between decodings of held-out prompts with the draft as it is; 0: none"),
          word("eval.held_prompts", "", {}, "eval.interval: file of these prompts, JSON Lines"),
          whole("eval.limit", 0, 0, 16777216, "eval.interval: only the first so many of them; 0: all"),
          whole("eval.draft_tokens", 3, 1, 16, "eval.interval: tokens proposed for each verification, at most"),
          whole("eval.max_new_tokens", 128, 1, 1048576, "eval.interval: tokens of an answer, at most"),
          whole("eval.batch", 8, 1, 64, "eval.interval: prompts that a rank decodes together"),
          real("eval.deadline_s", 3600, 1, 864000, "eval.interval: seconds that ranks wait for the slowest of them"),
          whole("speculation.draft_tokens", 3, 1, 16, "tokens the draft proposes for each verification, at most"),
          whole("speculation.tree_nodes", 0, 0, 1024,
                "EAGLE3, P-EAGLE: tokens in the tree of each verification, at most; 0: a chain"),
          whole("speculation.tree_width", 8, 1, 64,
                "nodes of each level of the tree that go on, and children of each of them"),
          real("speculation.least_confidence", 0, 0, 1,
               "DSpark: a proposal ends before a token whose confidence is below this; 0: never"),
          whole("draft.vocab_size", 0, 0, 16777216, "tokens the draft can propose, the data's most frequent; 0: all"),
          numbers("draft.layers", 1, 65536,
                  "layers to capture, as states after that many blocks; empty: the algorithm's own"),
          whole("draft.hidden_layers", 0, 0, 4096, "layers of the draft; 0: the kind's own (P-EAGLE 4, others 1)"),
          flag("draft.norm_before_residual", false, "P-EAGLE: the first layer's residual is the normed state"),
          whole("draft.block_size", 16, 2, 1024, "slots of a block: one clean token, then masks"),
          whole("draft.sliding_window", 0, 0, 1048576,
                "window of every layer of a draft of blocks but the last; 0: all attend to everything"),
          whole("draft.conv_kernel_size", 2, 1, 64, "DFlash2: taps of its convolutions"),
          whole("draft.conv_group_size", 16, 1, 65536, "DFlash2: channels that share what a kernel adds"),
          whole("draft.selector_rank", 256, 1, 65536, "DFlash2: rank of the selector"),
          whole("draft.selector_top_k", 16, 1, 64, "DFlash2: candidates of a slot"),
          whole("draft.markov_rank", 256, 0, 65536, "DSpark: rank of the bias by the token before; 0: none"),
          word("draft.markov_head_type", "vanilla", {"vanilla", "gated", "rnn"}, "DSpark: form of that bias"),
          flag("draft.confidence_head", true, "DSpark: a head that says how likely a token is accepted"),
          flag("draft.confidence_head_with_markov", false, "DSpark: it reads the token before too"),
          whole("draft.emb_dim", 256, 1, 65536, "Domino: width of the correction's projection"),
          whole("draft.gru_hidden_dim", 1024, 1, 65536, "Domino: width of the recurrent state"),
          whole("draft.pure_draft_prefix_len", 1, 0, 1024, "Domino: slots without a correction"),
          flag("draft.shift_label", true, "Domino: slot k predicts the token after its place, not the one at it"),
          whole("draft.mask_token_id", -1, -1, 16777216,
                "token of the masked slots; -1: the first row of the target's embedding that no token has"),
          flag("draft.fc_norm", false, "normalise each captured state before it is projected (EAGLE3.1)"),
          word("draft.init", "random", {"random", "target"},
               "random: as the reference starts; target: as the target's head over its last captured state"),
          whole("draft.seed", 42, 0, kMostInt, "seed of the draft's initial weights"),
      });
}

void add_lora(std::vector<Key>& keys) {
  keys.insert(keys.end(),
              {
                  whole("lora.rank", 8, 1, 65536, "rank of every adapter"),
                  real("lora.alpha", 16, 0, 1e9, "what an adapter adds is scaled by alpha / rank"),
                  word("lora.scaling", "standard", {"standard", "rslora"}, "rslora: by alpha / sqrt(rank)"),
                  word("lora.targets", "all-linear", {},
                       "linear layers: names or endings with commas, all-linear, or re:EXPRESSION for whole names"),
                  word("lora.exclude", "", {}, "linear layers left out, said likewise"),
                  word("lora.experts", "", {}, "fused parameters of experts: names or endings with commas"),
                  word("lora.rank_pattern", "", {},
                       "other ranks, e.g. q_proj=16,layers.0.mlp.up_proj=4; the first match counts"),
                  word("lora.alpha_pattern", "", {}, "other alphas, said likewise"),
                  whole("lora.seed", 42, 0, kMostInt, "seed of an adapter's initial weights"),
              });
}

void add_grpo(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          whole("grpo.prompts", 8, 1, 65536, "prompts of a step"),
          whole("grpo.responses", 8, 2, 4096, "responses drawn to each prompt"),
          whole("grpo.dynamic_sampling", 0, 0, 1024,
                "rollouts of a step until grpo.prompts have responses that differ, at most; 0: off"),
          whole("grpo.mini_batch", 0, 0, 65536, "prompts of one optimizer step; 0: all of the step's"),
          whole("grpo.token_budget", 8192, 2, 1e9, "tokens of a micro-batch at most, padding included"),
          word("grpo.advantage", "grpo", {"grpo", "dr-grpo", "rloo", "opo", "pass-k"},
               "what a response is worth beside the others to its prompt"),
          word("grpo.loss", "ppo", {"ppo", "gspo", "cispo", "gpg"}, "loss of a token or a sequence by its ratio"),
          word("grpo.aggregation", "token-mean",
               {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"},
               "how the losses of a mini-batch's tokens become one"),
          real("grpo.factor", 0, 0, 1e9, "seq-mean-token-sum-norm: the norm; 0: generate.max_new_tokens"),
          real("grpo.clip_low", 0.2, 0, 0.999999, "the ratio is clipped below 1 minus this"),
          real("grpo.clip_high", 0.2, 0, 1e6, "the ratio is clipped above 1 plus this"),
          real("grpo.clip_dual", 3, 1.000001, 1e6, "ppo: a bad response's loss is at most its ratio clipped to this"),
          real("grpo.kl_coef", 0, 0, 1e6, "weight of the distance to the target without its adapter; 0: none"),
          word("grpo.kl", "k3", {}, "how that is estimated: k1, abs, k2 or k3; with a + the gradient of k2"),
          word("grpo.old_log_probs", "recompute", {"recompute", "update", "rollout"},
               "what the ratio is over: a pass before the update, the update's own, the sampler's"),
          word("grpo.correction", "", {},
               "importance weights of trainer over sampler: 2.0 cuts them, 0.5_5.0 zeroes those outside"),
          word("grpo.correction_level", "token", {"token", "sequence"}, "one such weight a token, or a sequence"),
          word("grpo.rejection", "", {}, "what is left out where the two differ, as token_k1,seq_mean_k3"),
          word("grpo.rejection_bounds", "2.0", {}, "one bound for all of these, or one each with commas between"),
          real("grpo.right", 1, -1e6, 1e6, "score of a correct response"),
          real("grpo.wrong", 0, -1e6, 1e6, "score of any other response"),
          real("grpo.reward_deadline_s", 60, 0.001, 86400,
               "seconds without an answer after which the program of --reward is begun again"),
          whole("grpo.reward_restarts", 2, 0, 1000, "how often that may be for the responses of one rollout"),
          whole("grpo.overlong_buffer", 0, 0, 1048576, "last tokens of the longest response that cost; 0: none do"),
          real("grpo.overlong_factor", 1, 0, 1e6, "what a response of the greatest length loses by them"),
          whole("grpo.eval_every", 10, 0, 1e9, "steps between answers to --held, beside the first and last; 0: none"),
          flag("grpo.keep_rollouts", false, "keep every response: RUN/rollouts/step-N.jsonl"),
      });
}

void add_plan(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          word("plan.algorithm", "eagle3", {"eagle3", "dflash", "dflash2", "dspark", "domino", "peagle", "sft", "grpo"},
               "what would be trained"),
          table("plan.target", "shapes of the target: what its config.json says, or the path of it"),
          table("plan.draft", "shapes of the draft likewise; default: those a new draft of the target has"),
          word("plan.memory", "", {}, "bytes a rank may use, as 80GiB; default: what this host gives a rank"),
          word("plan.bandwidth", "10G", {}, "bytes a second that a rank receives, as 10G or 8GiB"),
      });
}

// What recipes of others say and this project does not do yet: a plan reads it, a run refuses it.
void add_planned(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          whole("planned.sampler_ranks", 1, 1, 1024, "ranks that hold a sampler's weights together"),
          flag("planned.device_graphs", false, "decoding steps are recorded once and replayed on the device"),
          word("planned.sampler_draft", "", {"", "mtp"}, "draft that proposes tokens while responses are drawn"),
          whole("planned.sampler_draft_tokens", 0, 0, 64, "tokens that it proposes at a time"),
      });
}

std::vector<Key> build() {
  std::vector<Key> keys;
  add_training(keys);
  add_engine(keys);
  add_capture(keys);
  add_generate(keys);
  add_lora(keys);
  add_grpo(keys);
  add_plan(keys);
  add_planned(keys);
  return keys;
}

}  // namespace

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = build();
  return keys;
}

}  // namespace sf::config
