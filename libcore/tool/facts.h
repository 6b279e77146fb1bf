// SPDX-License-Identifier: Apache-2.0
// What answers were made with, as one JSON object, and what differs between two of them.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "arch/drafts.h"
#include "base/json.h"
#include "ckpt/checkpoint.h"
#include "config/settings.h"
#include "text/chat.h"
#include "tool/target_settings.h"

namespace sf::tool {

// "generate.temperature was 0.6, is 0.7; ...", settings under their keys; the first few, or empty. Keys in `skip` may
// differ.
std::string facts_difference(const Json& was, const Json& is, std::initializer_list<std::string_view> skip = {});

// Adds what answers depend on when a draft helps: its identity, and the settings that change its draws.
void add_draft_facts(Json& facts, const ckpt::Checkpoint& draft, const arch::Proposals& proposals,
                     const config::Settings& settings);

// How tokens are drawn; a greedy one draws nothing.
Json draw_facts(const AnswerSettings& asked);
// What the chats of sf-capture regenerate depend on.
Json chat_job(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, const AnswerSettings& asked,
              Dtype compute);

}  // namespace sf::tool
