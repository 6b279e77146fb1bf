// SPDX-License-Identifier: Apache-2.0
// Position ids of three planes: tables and turned heads of the sectioned and the interleaved form, and the positions of
// text with images and videos.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <cmath>
#include <set>

#include "arch/decoder.h"
#include "compare.h"
#include "model/rotary.h"
#include "ops/rope.h"
#include "rl/vision_positions.h"

namespace sf::golden {
namespace {

constexpr double kTable = 1e-6, kTurned = 5e-6;  // the cases' own

// The reference forms position times frequency in fp32, ours in fp64: an angle of a may differ by two roundings of a.
constexpr double kAngle = 0x1p-23;

class Planes {
 public:
  explicit Planes(const Case& c)
      : file_(c.tensors()),
        rope_(arch::rope_from_config(Json::object().set("rope_parameters", c.json.at("rope_parameters")), 1 << 20,
                                     {.partial = 1, .sections = {1, 1, 1}})),
        slots_(c.json.at("slot_to_plane").as_string()),
        interleaved_(c.json.at("rope_parameters").get_bool("mrope_interleaved", false)),
        dims_(2 * static_cast<int64_t>(slots_.size())) {}

  Outcome run() {
    std::string planes;
    for (int64_t plane : arch::planes_of_slots(rope_.sections, dims_ / 2, interleaved_))
      planes += std::to_string(plane);
    if (planes != slots_) return Outcome::failed("slots take planes " + planes + ", wanted " + slots_);
    return first_failure({frequencies(), tables(""), tables("equal/"), turned(""), turned("equal/"), degenerate()});
  }

 private:
  Outcome frequencies() const {
    const arch::RopeTable table = arch::rope_table(rope_, dims_, 1 << 20, 1);
    at::Tensor found = at::empty({dims_ / 2}, at::kFloat);
    for (size_t i = 0; i < table.inverse_frequency.size(); ++i)
      found.mutable_data_ptr<float>()[i] = static_cast<float>(table.inverse_frequency[i]);
    return same("inv_freq", found, load(file_, "inv_freq"), 0, 1e-6);
  }

  model::Rotary::Turns turns(const std::string& form) const {
    return model::Rotary(rope_, dims_, 1 << 20, interleaved_).turns_for(load(file_, form + "position_ids"));
  }

  // Ours against the reference's, the largest angle of each row as the bound's measure.
  Outcome tables(const std::string& form) const {
    const model::Rotary::Turns ours = turns(form);
    const double bound = kTable + kAngle * load(file_, form + "position_ids").max().item<double>();
    auto wanted = [&](const char* name) {
      return load(file_, form + name).narrow(-1, 0, dims_ / 2).reshape({-1, dims_ / 2});
    };
    auto rows = [&](const at::Tensor& of) { return of.index_select(0, ours.rows.reshape({-1})); };
    if (form == "equal/" && !file_.find("equal/sin")) return Outcome::passed();
    return first_failure({same(form + "cos", rows(ours.table.cos), wanted("cos"), bound),
                          same(form + "sin", rows(ours.table.sin), wanted("sin"), bound)});
  }

  // Heads turned by the reference's own table, so that nothing but the turning differs.
  Outcome turned(const std::string& form) const {
    const model::Rotary::Turns ours = turns(form);
    const ops::RotaryTable theirs{
        load(file_, form + "cos").narrow(-1, 0, dims_ / 2).reshape({-1, dims_ / 2}).contiguous(),
        load(file_, form + "sin").narrow(-1, 0, dims_ / 2).reshape({-1, dims_ / 2}).contiguous()};
    const at::Tensor own = load(file_, form + "position_ids")[0];
    at::Tensor each = at::empty(own.sizes(), at::kLong);
    for (int64_t i = 0; i < each.numel(); ++i) each.mutable_data_ptr<int64_t>()[i] = i;
    const double angle = kAngle * load(file_, form + "position_ids").max().item<double>();
    for (const char* name : {"q", "k"}) {
      const at::Tensor x = load(file_, name), wanted = load(file_, fmt::format("{}{}_rot", form, name));
      const double largest = x.abs().max().item<double>();
      Outcome outcome =
          first_failure({same(fmt::format("{}{}_rot by the reference's table", form, name),
                              ops::apply_rotary(x, theirs, each), wanted, kTurned),
                         same(fmt::format("{}{}_rot", form, name), ops::apply_rotary(x, ours.table, ours.rows), wanted,
                              kTurned + 2 * largest * angle)});
      if (outcome.verdict != Outcome::kPassed) return outcome;
    }
    return Outcome::passed();
  }

  // Equal planes give the bits of one plane.
  Outcome degenerate() const {
    const model::Rotary rotary(rope_, dims_, 1 << 20, interleaved_);
    const at::Tensor planes = load(file_, "equal/position_ids"), x = load(file_, "q");
    const auto three = rotary.turns_for(planes), one = rotary.turns_for(planes[0].contiguous());
    const auto four = rotary.turns_for(at::cat({planes.narrow(0, 0, 1).add(1), planes}));
    auto turn = [&](const model::Rotary::Turns& t) { return ops::apply_rotary(x, t.table, t.rows); };
    return first_failure(
        {same("equal planes", turn(three), turn(one), 0), same("four planes", turn(four), turn(one), 0)});
  }

  ckpt::SafetensorsFile file_;
  arch::Rope rope_;
  std::string slots_;
  bool interleaved_;
  int64_t dims_;
};

std::vector<rl::VisionGrid> grids(const ckpt::SafetensorsFile& file, const char* name, const Json* seconds) {
  std::vector<rl::VisionGrid> result;
  if (!file.find(name)) return result;
  const at::Tensor rows = load(file, name);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const int64_t* row = rows.const_data_ptr<int64_t>() + 3 * i;
    result.push_back({row[0], row[1], row[2]});
    if (seconds && !seconds->is_null()) result.back().seconds = seconds->as_array()[static_cast<size_t>(i)].as_double();
  }
  return result;
}

// [3, B, S] of a batch: padding is 0 on all planes.
Outcome positions(const Case& c, const ckpt::SafetensorsFile& file, const std::string& form) {
  const at::Tensor kinds = load(file, form + "mm_token_type_ids"), mask = load(file, form + "attention_mask");
  const Json* rate = c.json.find("tokens_per_second");
  const bool timed = rate && !rate->is_null();
  // The classes before Qwen3-VL have a video as one run.
  const bool apart = !c.json.at("class").as_string().starts_with("Qwen2");
  rl::VisionPlanes planes({c.json.get_int("spatial_merge_size", 2), apart, timed ? rate->as_double() : 0},
                          grids(file, "image_grid_thw", nullptr),
                          grids(file, "video_grid_thw", c.json.find("second_per_grid_ts")));
  at::Tensor found = at::empty({3, kinds.size(0), kinds.size(1)}, at::kLong).zero_();
  at::Tensor deltas = at::empty({kinds.size(0), 1}, at::kLong);
  for (int64_t b = 0; b < kinds.size(0); ++b) {
    std::vector<rl::TokenKind> own;
    const at::Tensor places = mask[b].ne(0).nonzero().reshape({-1});
    for (int64_t i = 0; i < places.numel(); ++i)
      own.push_back(static_cast<rl::TokenKind>(kinds[b][places[i].item<int64_t>()].item<int64_t>()));
    const rl::VisionPositions made = planes.of(own);
    for (int64_t plane = 0; plane < 3; ++plane)
      for (int64_t i = 0; i < places.numel(); ++i)
        found[plane][b][places[i].item<int64_t>()] = made.values[static_cast<size_t>(plane * places.numel() + i)];
    deltas[b][0] = made.delta;
  }
  return first_failure({same(form + "position_ids", found, load(file, form + "position_ids"), 0),
                        same(form + "mrope_position_deltas", deltas, load(file, form + "mrope_position_deltas"), 0)});
}

Outcome check(const Case& c) {
  if (c.json.contains("slot_to_plane")) return Planes(c).run();
  const ckpt::SafetensorsFile file = c.tensors();
  std::set<std::string> forms;
  for (const ckpt::TensorInfo& tensor : file.tensors())
    if (tensor.name.ends_with("/position_ids")) forms.insert(tensor.name.substr(0, tensor.name.find('/') + 1));
  for (const std::string& form : forms)
    if (Outcome outcome = positions(c, file, form); outcome.verdict != Outcome::kPassed) return outcome;
  return forms.empty() ? Outcome::failed("the case holds no form") : Outcome::passed();
}

const bool registered = add("mrope", check);

}  // namespace
}  // namespace sf::golden
