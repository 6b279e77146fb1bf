// SPDX-License-Identifier: Apache-2.0
// A file of verdicts: a header line that says by which rule over which questions, then one line an answer, in the order
// of questions and samples. Verdicts of different rules, questions or options never mix.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "score/statistics.h"
#include "score/verdict.h"

namespace sf::score {

struct ScoredAnswer {
  uint32_t question = 0;  // index into Scores::ids
  int32_t sample = 0;
  int32_t tokens = -1;  // -1: not said
  Outcome outcome = Outcome::kNoAnswer;
  bool cut = false;   // ended by the length limit
  uint32_t line = 0;  // of the file of verdicts; 0: not from one
  std::string normal;
};

struct Scores {
  std::string origin;  // the file, for messages
  Json header;         // v, rule, rule_version, rule_digest, questions_digest, questions, shard, label, step, ...
  std::vector<std::string> ids;  // questions in order
  std::vector<ScoredAnswer> answers;
  // What part of its questions it holds, "1 of 2 questions" or "shard 0 of 3, 1 of 3 questions"; empty: all of them.
  std::string coverage() const;
  std::string label() const;  // header's label, else "step N", else the rule's name
};

constexpr int64_t kScoresVersion = 1;

std::string line_of(const ScoredAnswer& answer, const std::string& id, const Span& span, std::string_view reason);

// Reads lines one by one. kData "ORIGIN:LINE: ..." for what is no file of verdicts; kProtocol for another version.
class ScoresReader {
 public:
  explicit ScoresReader(std::string origin) : origin_(std::move(origin)) {}
  void take(std::string_view line, size_t number = 0);   // 0: the line behind the one before
  const Json& header() const { return scores_.header; }  // once it was taken
  // Puts answers in order. kData: a (question, sample) twice, or another number of answers than the header promises
  // (fewer pass with `may_lack`: a half-written last line was left out).
  Scores finish(bool may_lack = false);

 private:
  void take_header(std::string_view line);
  void take_row(const Json& row);
  uint32_t index_of(std::string_view id);
  std::string origin_;
  size_t line_ = 0;
  Scores scores_;
  std::map<std::string, uint32_t, std::less<>> index_;
};

// kProtocol naming the difference if two files cannot be compared: rule, version, digest or questions differ.
void require_comparable(const Scores& a, const Scores& b);

// Counts of a file of verdicts.
struct Summary {
  int64_t questions = 0, answers = 0;
  int64_t least = 0, most = 0;  // answers of a question
  std::array<int64_t, kOutcomes> outcomes{};
  int64_t cut = 0;  // ended by the length limit, whatever their outcome
  int64_t tokens = 0, with_tokens = 0;
  std::vector<Tally> tallies;  // one a question
  double rate = 0;             // pass@1 = mean over questions of correct / answers
  Interval interval;
  double error = 0, within = 0;                     // clustered standard error; the part of it that is sampling
  double majority = 0;                              // maj@n over questions
  std::vector<std::pair<int64_t, double>> pass_at;  // k = 2, 4, ... and the least number of answers
  int64_t count(Outcome outcome) const { return outcomes[static_cast<size_t>(outcome)]; }
  Reading reading() const;
  Json to_json() const;
};
// maj@k for the k of pass_at below the least number of answers: over all subsets of k, or `draws` drawn ones (seed 0)
// of a question where there are more, fewer the more questions there are.
struct Majorities {
  std::vector<std::pair<int64_t, double>> at;
  int64_t draws = 0;
};
Majorities majorities_of(const Scores& scores, const Summary& summary);

Summary summarise(const Scores& scores);

}  // namespace sf::score
