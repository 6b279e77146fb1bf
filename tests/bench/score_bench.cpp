// SPDX-License-Identifier: Apache-2.0
// usage: score_bench CASE_JSON RULE: answers a second of one thread, over the case's rows again and again for a second
// of processor time.
#include <fmt/core.h>

#include <ctime>

#include "base/file.h"
#include "base/json.h"
#include "score/rule.h"

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  sf::Json golden = sf::Json::parse(sf::read_file(argv[1]), argv[1]);
  const sf::Json::Array& rows = golden.at("rows").as_array();
  sf::score::Rule rule = sf::score::make_rule(argv[2]);
  size_t answers = 0, correct = 0;
  std::clock_t start = std::clock(), now = start;
  for (; now - start < CLOCKS_PER_SEC; now = std::clock())
    for (const sf::Json& row : rows) {
      correct += rule.score(row.at("gold").as_string(), {.text = row.at("response").as_string()}).correct();
      ++answers;
    }
  double seconds = static_cast<double>(now - start) / CLOCKS_PER_SEC;
  fmt::print("{{\"answers_per_s\": {:.0f}, \"answers\": {}, \"correct\": {}}}\n",
             static_cast<double>(answers) / seconds, answers, correct);
}
