// SPDX-License-Identifier: Apache-2.0
#include "text/split.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "text/regex.h"
#include "text/scan.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

enum class Behaviour { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Span {
  std::string_view text;
  bool match;
};

void merge_with_previous(std::vector<Span>& spans) {
  std::vector<Span> out;
  bool previous_match = false;
  for (const Span& span : spans) {
    if (span.match && !previous_match && !out.empty())
      out.back().text = {out.back().text.data(), out.back().text.size() + span.text.size()};
    else
      out.push_back(span);
    previous_match = span.match;
  }
  spans = std::move(out);
}

void merge_with_next(std::vector<Span>& spans) {
  std::vector<Span> out;  // from the end
  bool previous_match = false;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->match && !previous_match && !out.empty())
      out.back().text = {span->text.data(), span->text.size() + out.back().text.size()};
    else
      out.push_back(*span);
    previous_match = span->match;
  }
  std::reverse(out.begin(), out.end());
  spans = std::move(out);
}

void merge_contiguous(std::vector<Span>& spans) {
  std::vector<Span> out;
  for (const Span& span : spans) {
    if (!out.empty() && out.back().match == span.match)
      out.back().text = {out.back().text.data(), out.back().text.size() + span.text.size()};
    else
      out.push_back(span);
  }
  spans = std::move(out);
}

// Applies a function from one text to its pieces to every piece.
template <typename Cut>
void recut(Pieces& pieces, Cut cut) {
  std::vector<std::string_view> before;
  before.swap(pieces.list);
  pieces.list.reserve(before.size() + 16);
  for (std::string_view piece : before) cut(piece, pieces.list);
}

class ScanStage : public SplitStage {
 public:
  explicit ScanStage(Scan scan) : scan_(scan) {}
  void apply(Pieces& pieces) const override {
    recut(pieces, [&](std::string_view text, auto& out) { scan_pieces(scan_, text, out); });
  }

 private:
  Scan scan_;
};

class RegexStage : public SplitStage {
 public:
  RegexStage(Regex regex, Behaviour behaviour, bool invert)
      : regex_(std::move(regex)), behaviour_(behaviour), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    recut(pieces, [&](std::string_view text, auto& out) {
      std::vector<Span> spans = spans_of(text);
      switch (behaviour_) {
        case Behaviour::kIsolated:
          break;
        case Behaviour::kRemoved:
          std::erase_if(spans, [](const Span& span) { return span.match; });
          break;
        case Behaviour::kMergedWithPrevious:
          merge_with_previous(spans);
          break;
        case Behaviour::kMergedWithNext:
          merge_with_next(spans);
          break;
        case Behaviour::kContiguous:
          merge_contiguous(spans);
          break;
      }
      for (const Span& span : spans)
        if (!span.text.empty()) out.push_back(span.text);
    });
  }

 private:
  std::vector<Span> spans_of(std::string_view text) const {
    std::vector<Span> spans;
    size_t done = 0;
    for (auto [start, end] : regex_.matches(text)) {
      if (start > done) spans.push_back({text.substr(done, start - done), invert_});
      spans.push_back({text.substr(start, end - start), !invert_});
      done = end;
    }
    if (done < text.size()) spans.push_back({text.substr(done), invert_});
    return spans;
  }

  Regex regex_;
  Behaviour behaviour_;
  bool invert_;
};

class DigitsStage : public SplitStage {
 public:
  explicit DigitsStage(bool individual) : individual_(individual) {}

  void apply(Pieces& pieces) const override {
    recut(pieces, [&](std::string_view text, auto& out) { cut(text, out); });
  }

 private:
  void cut(std::string_view text, std::vector<std::string_view>& out) const {
    const uint8_t* classes = unicode_classes();
    const char* start = text.data();
    const char* end = start + text.size();
    bool in_number = false;
    for (const char* p = start; p < end;) {
      unsigned length;
      bool number = classes[decode_valid(p, length)] & kNumber;
      if (p > start && (number != in_number || (number && individual_))) {
        out.emplace_back(start, static_cast<size_t>(p - start));
        start = p;
      }
      in_number = number;
      p += length;
    }
    if (start < end) out.emplace_back(start, static_cast<size_t>(end - start));
  }

  bool individual_;
};

class PrefixSpaceStage : public SplitStage {
 public:
  void apply(Pieces& pieces) const override {
    for (std::string_view& piece : pieces.list) {
      if (piece.starts_with(' ')) continue;
      auto spaced = std::make_unique<std::string>(1, ' ');
      spaced->append(piece);
      piece = *spaced;
      pieces.kept.push_back(std::move(spaced));
    }
  }
};

// One entry of tokenizer.json's pre_tokenizer, with its path for messages.
struct StageReader {
  std::vector<std::unique_ptr<SplitStage>>* stages;
  std::string origin;
  bool byte_level = false;

  void read(const Json& json, const std::string& path, int depth) {
    SF_CHECK(json.is_object(), Exit::kData, "{}: {}: wanted a pre-tokenizer object, found {}", origin, path,
             json.type_name());
    SF_CHECK(depth < 16, Exit::kData, "{}: {}: pre-tokenizers are nested too deeply", origin, path);
    std::string type = json.get_string("type", "");
    if (byte_level)
      fail(Exit::kData, "{}: {}: pre-tokenizer \"{}\" after ByteLevel is not supported", origin, path, type);
    if (type == "Sequence") {
      const Json::Array& list = json.at("pretokenizers").as_array();
      for (size_t i = 0; i < list.size(); ++i) read(list[i], fmt::format("{}.pretokenizers[{}]", path, i), depth + 1);
    } else if (type == "Split") {
      read_split(json, path);
    } else if (type == "Digits") {
      stages->push_back(std::make_unique<DigitsStage>(json.get_bool("individual_digits", false)));
    } else if (type == "ByteLevel") {
      if (json.get_bool("add_prefix_space", true)) stages->push_back(std::make_unique<PrefixSpaceStage>());
      if (json.get_bool("use_regex", true)) stages->push_back(isolate(kGpt2Pattern, true, origin));
      byte_level = true;
    } else {
      fail(Exit::kData, "{}: {}: pre-tokenizer \"{}\" is not supported (Split, Digits, ByteLevel and Sequence are)",
           origin, path, type);
    }
  }

  void read_split(const Json& json, const std::string& path) {
    static const std::pair<std::string_view, Behaviour> kNames[] = {
        {"Isolated", Behaviour::kIsolated},
        {"Removed", Behaviour::kRemoved},
        {"MergedWithPrevious", Behaviour::kMergedWithPrevious},
        {"MergedWithNext", Behaviour::kMergedWithNext},
        {"Contiguous", Behaviour::kContiguous}};
    std::string name = json.at("behavior").as_string();
    auto found =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& entry) { return entry.first == name; });
    SF_CHECK(found != std::end(kNames), Exit::kData, "{}: {}: Split behavior \"{}\" is not known", origin, path, name);
    bool invert = json.get_bool("invert", false);
    const Json& pattern = json.at("pattern");
    const Json* regex = pattern.find("Regex");
    std::string source = regex ? regex->as_string() : quoted(pattern.at("String").as_string());
    bool plain = found->second == Behaviour::kIsolated && !invert;
    std::unique_ptr<SplitStage> stage = plain ? isolate(source, true, origin) : nullptr;
    if (!stage)
      stage = std::make_unique<RegexStage>(Regex::compile(source, origin + ": " + path), found->second, invert);
    stages->push_back(std::move(stage));
  }

  static std::string quoted(const std::string& text) {
    std::string out;
    for (char c : text) {
      if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)))
        out += fmt::format("\\x{{{:x}}}", c);
      else
        out += c;
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<SplitStage> isolate(std::string_view pattern, bool scanner, std::string_view origin) {
  if (!scanner) return std::make_unique<RegexStage>(Regex::compile(pattern, origin), Behaviour::kIsolated, false);
  Scan scan = scan_of_pattern(pattern);
  if (scan == Scan::kNone) return nullptr;
  return std::make_unique<ScanStage>(scan);
}

PreTokenizer PreTokenizer::from_json(const Json& json, std::string_view origin) {
  PreTokenizer result;
  StageReader reader{&result.stages_, std::string(origin)};
  reader.read(json, "pre_tokenizer", 0);
  SF_CHECK(reader.byte_level, Exit::kData,
           "{}: pre_tokenizer: wanted a ByteLevel stage, found none (only byte-level BPE is supported)", origin);
  return result;
}

void PreTokenizer::split(std::string_view text, Pieces& pieces) const {
  pieces.list.clear();
  pieces.kept.clear();
  if (text.empty()) return;
  pieces.list.push_back(text);
  for (const auto& stage : stages_) stage->apply(pieces);
}

}  // namespace sf::text
