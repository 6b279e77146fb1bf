// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "golden.h"

namespace sf::golden {
namespace {

std::map<std::string, Checker>& checkers() {
  static std::map<std::string, Checker> map;
  return map;
}

// The number of the present case that came nearest to its bound.
struct Nearest {
  std::string what;
  double error = 0, bound = 0;
};
Nearest& nearest() {
  static Nearest held;
  return held;
}

std::string nearest_text() {
  const Nearest& n = nearest();
  return n.bound > 0 ? fmt::format("  largest error {:.2g}, bound {:.2g} ({})", n.error, n.bound, n.what) : "";
}

Outcome run(const Case& c) {
  std::string kind = c.json.get_string("kind", "");
  auto found = checkers().find(kind);
  if (found != checkers().end()) return found->second(c);
  return Outcome::failed(fmt::format("unknown kind \"{}\"", kind));
}

std::vector<std::filesystem::path> case_folders(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().filename() == "case.json") folders.push_back(entry.path().parent_path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

bool add(const std::string& kind, Checker checker) {
  return checkers().emplace(kind, std::move(checker)).second;
}

void note_error(std::string_view what, double error, double bound) {
  static std::mutex mutex;  // cases of several ranks compare on several threads
  std::lock_guard lock(mutex);
  Nearest& n = nearest();
  if (bound > 0 && (n.bound == 0 || error / bound > n.error / n.bound)) n = {std::string(what), error, bound};
}

Outcome close(std::string_view what, const float* found, const float* wanted, size_t count, double absolute,
              double relative) {
  double worst = 0, largest = 0, allowed = 0;
  size_t where = 0;
  for (size_t i = 0; i < count; ++i) {
    double error = std::abs(double{found[i]} - double{wanted[i]});
    double bound = absolute + relative * std::abs(double{wanted[i]}), excess = error - bound;
    if (bound > 0 && (allowed == 0 || error / bound > largest / allowed)) largest = error, allowed = bound;
    if (std::isnan(excess)) excess = INFINITY;
    if (excess > worst) worst = excess, where = i;
  }
  note_error(what, largest, allowed);
  if (worst <= 0) return Outcome::passed();
  return Outcome::failed(fmt::format("{}: element {} is {:.9g}, wanted {:.9g} (over the bound by {:.3g})", what, where,
                                     found[where], wanted[where], worst));
}

}  // namespace sf::golden

int main(int argc, char** argv) {
  using namespace sf::golden;
  std::vector<std::filesystem::path> roots;
  if (argc > 1) roots.emplace_back(argv[1]);
  if (const char* more = std::getenv("SF_GOLDEN")) {
    std::stringstream list(more);
    for (std::string dir; std::getline(list, dir, ':');)
      if (!dir.empty()) roots.emplace_back(dir);
  }
  int passed = 0, failed = 0, not_run = 0;
  for (const auto& root : roots) {
    for (const auto& folder : case_folders(root)) {
      std::string name = std::filesystem::relative(folder, root).string();
      Outcome outcome;
      try {
        Case c{folder, sf::Json::parse(sf::read_file(folder / "case.json"), (folder / "case.json").string())};
        nearest() = {};
        outcome = run(c);
      } catch (const std::exception& error) {
        outcome = Outcome::failed(error.what());
      }
      const char* word = outcome.verdict == Outcome::kPassed   ? "ok"
                         : outcome.verdict == Outcome::kFailed ? "FAILED"
                                                               : "not run";
      fmt::print("{:8} {}{}{}{}\n", word, name, outcome.detail.empty() ? "" : ": ", outcome.detail, nearest_text());
      (outcome.verdict == Outcome::kPassed ? passed : outcome.verdict == Outcome::kFailed ? failed : not_run)++;
    }
  }
  fmt::print("golden: {} passed, {} failed, {} not run\n", passed, failed, not_run);
  return failed == 0 && passed > 0 ? 0 : 1;
}
