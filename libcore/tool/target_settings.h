// SPDX-License-Identifier: Apache-2.0
// The settings of the verbs that run a target: read, judged and echoed here for --plan and for the run, so that neither
// takes what the other refuses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "arch/decoder.h"
#include "ckpt/checkpoint.h"
#include "config/settings.h"
#include "text/tokenizer.h"

namespace sf::tool {

// [generate]: how answers are drawn and ended. Of greedy answers the keys of the draw are left as they are.
struct AnswerSettings {
  double temperature = 0, repetition_penalty = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0, max_new_tokens = 0, batch = 0;
  uint64_t seed = 0;
  // The target's own end and what is given; nothing where generate.ignore_eos asks for it. A given text that is one
  // special token ends an answer as its id.
  std::vector<int32_t> stop_ids;
  std::vector<std::string> stop_texts;
};
// kConfig for an empty stop text and an id outside the vocabulary; errors of ckpt::end_ids_of().
AnswerSettings apply_answers(config::Settings& settings, const ckpt::Checkpoint& target, const arch::Decoder& decoder,
                             const text::Tokenizer& tokenizer);

// speculation.least_confidence, of a draft that judges its proposals or does not.
double apply_least_confidence(config::Settings& settings, bool judges);
// [speculation] where there is no draft.
void apply_no_draft(config::Settings& settings);

// What a producer of features is asked for; all of it without effect where a directory is written.
struct ProducerSettings {
  uint64_t cache_bytes = 0, credit_bytes = 0;
  double heartbeat_s = 0, stop_s = 0, explain_s = 0, rejoin_s = 0;
  std::string bind;  // as an address of ZeroMQ
  bool encrypt = true;
};
void apply_no_stream(config::Settings& settings);
// `by_file`: its handle lies in a file, so that a trainer can come back.
ProducerSettings apply_producer(config::Settings& settings, bool by_file);

// shard.host_resident and shard.host_dir of a target: whether its embedding is mapped, and where a copy would lie.
struct HostEmbedding {
  bool mapped = false, copied = false;
  std::string dir;
};
// kConfig naming a parameter that cannot be host-resident.
HostEmbedding apply_host_embedding(config::Settings& settings, const arch::Decoder& decoder);

}  // namespace sf::tool
