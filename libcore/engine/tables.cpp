// SPDX-License-Identifier: Apache-2.0
#include "engine/tables.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "ops/vocabulary_head.h"
#include "tensor/convert.h"
#include "tensor/device.h"

namespace sf::engine {
namespace {

using Use = std::function<void(int64_t first, const at::Tensor& rows)>;

// One table, seen by every rank in the same order of calls.
class Table {
 public:
  Table(const plan::Schedule& plan, size_t parameter, comm::Group& group, const TableOptions& options)
      : held_(plan.parameters[parameter]),
        compute_(plan.options.compute),
        parameter_(parameter),
        group_(group),
        options_(options) {
    SF_ASSERT(held_.shape.size() == 2);
  }
  virtual ~Table() = default;
  Table(const Table&) = delete;

  // ids: I64 [n], or undefined without a micro-batch -> [n, width], or undefined.
  virtual at::Tensor look_up(const Store& store, const at::Tensor& ids) = 0;
  // All rows in ascending chunks of `chunk`, to `use` if there is one.
  virtual void visit(const Store& store, int64_t chunk, const Use& use) = 0;
  virtual void end_window() {}
  const std::string& name() const { return held_.name; }
  // Where the rows are wanted; nothing is copied if they are there.
  at::Tensor at_use(const at::Tensor& rows) const {
    return rows.device() == options_.device ? rows : rows.to(options_.device);
  }
  int64_t rows() const { return held_.shape[0]; }

 protected:
  int64_t width() const { return held_.shape[1]; }
  size_t row_bytes() const { return static_cast<size_t>(width()) * size_of(held_.compute); }
  at::TensorOptions type() const { return at::TensorOptions(tensor::to_scalar(held_.compute)); }
  plan::Interval own_rows(int rank) const {
    const plan::Interval& mine = held_.intervals[static_cast<size_t>(rank)];
    return {mine.lo / width(), mine.hi / width()};
  }
  // A call to the other ranks, timed.
  template <typename Body>
  void talk(const std::string& what, Body&& body) {
    double start = monotonic_s();
    body(comm::Call{what, Deadline::after(Seconds(options_.call_deadline_s))});
    if (options_.communication_s) *options_.communication_s += monotonic_s() - start;
  }
  // Rows [lo, hi) of the table into `into`, from those who hold them.
  void gather(const Store& store, int64_t lo, int64_t hi, const at::Tensor& into, const std::string& what) {
    std::vector<size_t> sizes;
    std::span<const std::byte> mine;
    for (int r = 0; r < group_.world(); ++r) {
      plan::Interval own = own_rows(r), part = plan::intersect(own, {lo, hi});
      sizes.push_back(static_cast<size_t>(part.size()) * row_bytes());
      if (r == group_.rank() && !part.empty())
        mine =
            store.frozen_bytes(parameter_).subspan(static_cast<size_t>(part.lo - own.lo) * row_bytes(), sizes.back());
    }
    std::span<std::byte> to(static_cast<std::byte*>(into.mutable_data_ptr()),
                            static_cast<size_t>(hi - lo) * row_bytes());
    talk(what, [&](const comm::Call& call) { group_.all_gather(mine, sizes, to, call); });
  }

  at::ScalarType compute_type() const { return tensor::to_scalar(compute_); }

  const plan::Held& held_;
  Dtype compute_;
  size_t parameter_;
  comm::Group& group_;
  TableOptions options_;
};

// shard: gathered (and brought to the device) at its first use in a window, given up at the window's end.
class SharedOut : public Table {
 public:
  using Table::Table;
  at::Tensor look_up(const Store& store, const at::Tensor& ids) override {
    const at::Tensor& table = whole(store);
    return ids.defined() ? at::embedding(table, tensor::beside(ids, table)) : at::Tensor();
  }
  void visit(const Store& store, int64_t chunk, const Use& use) override {
    const at::Tensor& table = whole(store);
    for (int64_t lo = 0; use && lo < rows(); lo += chunk) use(lo, table.narrow(0, lo, std::min(chunk, rows() - lo)));
  }
  void end_window() override {
    if (!fault("engine.keep_table")) whole_.reset();
  }

 private:
  const at::Tensor& whole(const Store& store) {
    if (whole_.defined()) return whole_;
    whole_ = at::empty({rows(), width()}, type());
    gather(store, 0, rows(), whole_, "gather " + name());
    whole_ = at_use(whole_);
    return whole_;
  }
  at::Tensor whole_;
};

// host: in the type of its file; what is taken of it is cast.
class OnHost : public Table {
 public:
  using Table::Table;
  at::Tensor look_up(const Store&, const at::Tensor& ids) override {
    return ids.defined() ? at::embedding(table(), ids).to(compute_type()) : at::Tensor();
  }
  void visit(const Store&, int64_t chunk, const Use& use) override {
    for (int64_t lo = 0; use && lo < rows(); lo += chunk)
      use(lo, table().narrow(0, lo, std::min(chunk, rows() - lo)).to(compute_type()));
  }

 private:
  const at::Tensor& table() const { return options_.hosts->table(parameter_); }
};

// rows, stream: what a use needs travels, and no rank ever holds the whole.
class InPieces : public Table {
 public:
  using Table::Table;

  at::Tensor look_up(const Store& store, const at::Tensor& ids) override {
    std::vector<int64_t> distinct;
    if (ids.defined()) {
      const int64_t* id = ids.const_data_ptr<int64_t>();
      distinct.assign(id, id + ids.numel());
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      SF_ASSERT(distinct.empty() || (distinct.front() >= 0 && distinct.back() < rows()));
    }
    std::vector<std::vector<std::byte>> answers = ask(store, distinct);
    return ids.defined() ? assemble(store, ids, distinct, answers) : at::Tensor();
  }

  void visit(const Store& store, int64_t chunk, const Use& use) override {
    at::Tensor buffer = at::empty({std::min(chunk, rows()), width()}, type());
    for (int64_t lo = 0; lo < rows(); lo += chunk) {
      at::Tensor part = buffer.narrow(0, 0, std::min(chunk, rows() - lo));
      gather(store, lo, lo + part.size(0), part, "stream " + name());
      if (use) use(lo, part);
    }
  }

 private:
  int owner_of(int64_t id) const {
    int owner = 0;
    while (id >= own_rows(owner).hi) ++owner;
    return owner;
  }
  std::span<const std::byte> own_row(const Store& store, int64_t id) const {
    auto at = static_cast<size_t>(id - own_rows(group_.rank()).lo);
    return store.frozen_bytes(parameter_).subspan(at * row_bytes(), row_bytes());
  }

  // The rows of foreign ids, by owner, in ascending order of ids; what lies here is not sent.
  std::vector<std::vector<std::byte>> ask(const Store& store, const std::vector<int64_t>& distinct) {
    auto world = static_cast<size_t>(group_.world());
    std::vector<std::vector<int32_t>> wanted(world);
    for (int64_t id : distinct)
      if (int owner = owner_of(id); owner != group_.rank())
        wanted[static_cast<size_t>(owner)].push_back(static_cast<int32_t>(id));
    std::vector<std::span<const std::byte>> to;
    for (const auto& ids : wanted) to.push_back(std::as_bytes(std::span(ids)));
    std::vector<std::vector<std::byte>> asked, answers, rows_of(world);
    talk("ids of " + name(), [&](const comm::Call& call) { asked = group_.all_to_all(to, call); });
    plan::Interval own = own_rows(group_.rank());
    for (size_t r = 0; r < world; ++r) {
      for (size_t at = 0; at < asked[r].size(); at += sizeof(int32_t)) {
        int32_t id = 0;
        std::memcpy(&id, asked[r].data() + at, sizeof(id));
        SF_CHECK(id >= own.lo && id < own.hi, Exit::kSoftware, "rank {} asked for row {} of {}, which is not here", r,
                 id, name());
        std::span<const std::byte> row = own_row(store, id);
        rows_of[r].insert(rows_of[r].end(), row.begin(), row.end());
      }
      to[r] = rows_of[r];
    }
    talk("rows of " + name(), [&](const comm::Call& call) { answers = group_.all_to_all(to, call); });
    return answers;
  }

  at::Tensor assemble(const Store& store, const at::Tensor& ids, const std::vector<int64_t>& distinct,
                      const std::vector<std::vector<std::byte>>& answers) const {
    std::vector<const std::byte*> place;  // of each distinct id
    std::vector<size_t> taken(answers.size(), 0);
    for (int64_t id : distinct) {
      auto owner = static_cast<size_t>(owner_of(id));
      if (owner == static_cast<size_t>(group_.rank())) {
        place.push_back(own_row(store, id).data());
      } else {
        SF_ASSERT(taken[owner] + row_bytes() <= answers[owner].size());
        place.push_back(answers[owner].data() + taken[owner]);
        if (!fault("engine.same_row")) taken[owner] += row_bytes();
      }
    }
    at::Tensor out = at::empty({ids.numel(), width()}, type());
    auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
    for (int64_t i = 0; i < ids.numel(); ++i, to += row_bytes()) {
      auto found = std::lower_bound(distinct.begin(), distinct.end(), ids.const_data_ptr<int64_t>()[i]);
      std::memcpy(to, place[static_cast<size_t>(found - distinct.begin())], row_bytes());
    }
    return out;
  }
};

std::shared_ptr<Table> make_table(const plan::Schedule& plan, size_t parameter, comm::Group& group,
                                  const TableOptions& options) {
  switch (*plan.parameters[parameter].residency) {
    case plan::Residency::kHost:
      return std::make_shared<OnHost>(plan, parameter, group, options);
    case plan::Residency::kShard:
      return std::make_shared<SharedOut>(plan, parameter, group, options);
    default:
      return std::make_shared<InPieces>(plan, parameter, group, options);
  }
}

class TableExchange : public Exchange {
 public:
  TableExchange(std::shared_ptr<Table> table, const model::Segment& segment)
      : table_(std::move(table)), segment_(segment) {}
  void end_window() override { table_->end_window(); }

 protected:
  std::shared_ptr<Table> table_;  // a tied table stands in for two segments
  const model::Segment& segment_;
};

class LookUp : public TableExchange {
 public:
  using TableExchange::TableExchange;
  model::Tensors forward(const Store& store, const model::Tensors* inputs, bool) override {
    at::Tensor ids;
    if (inputs) ids = tensor::on_host(inputs->at(segment_.reads[0])).to(at::kLong).contiguous();
    at::Tensor rows = table_->look_up(store, ids);
    if (!inputs) return {};
    return {{segment_.writes[0], table_->at_use(rows)}};
  }
  model::Tensors backward(const Store&, const model::Tensors*) override { return {}; }
};

class Head : public TableExchange {
 public:
  using TableExchange::TableExchange;
  model::Tensors forward(const Store& store, const model::Tensors* inputs, bool graph) override {
    head_.reset();
    if (inputs) head_.emplace(inputs->at(segment_.reads[0]), inputs->at(segment_.reads[1]), table_->rows(), graph);
    table_->visit(store, segment_.table->chunk, inputs ? see() : Use());
    if (!inputs) return {};
    model::Tensors out{{segment_.writes[0], head_->nll()}, {segment_.writes[1], head_->top1()}};
    if (!graph) head_.reset();
    return out;
  }
  model::Tensors backward(const Store&, const model::Tensors* gradients) override {
    if (!gradients) return {};
    auto upstream = gradients->find(segment_.writes[0]);
    if (upstream == gradients->end()) return {};
    model::Tensors out{{segment_.reads[0], head_->gradient(upstream->second)}};
    head_.reset();
    return out;
  }

 private:
  Use see() {
    return [this](int64_t first, const at::Tensor& rows) { head_->see(first, table_->at_use(rows)); };
  }
  std::optional<ops::VocabularyHead> head_;
};

}  // namespace

std::map<std::string, std::shared_ptr<Exchange>> table_exchanges(const plan::Schedule& plan,
                                                                 const std::vector<model::Segment>& segments,
                                                                 const arch::ModelSpec& spec, comm::Group& group,
                                                                 const TableOptions& options) {
  std::map<std::string, std::shared_ptr<Exchange>> exchanges;
  std::map<size_t, std::shared_ptr<Table>> tables;
  for (const model::Segment& segment : segments) {
    if (!segment.table) continue;
    std::string_view name = spec.storage_of(segment.parameters[0]);
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
      if (plan.parameters[p].name != name || !plan.parameters[p].exchanged) continue;
      std::shared_ptr<Table>& table = tables[p];
      if (!table) table = make_table(plan, p, group, options);
      if (segment.table->kind == model::TableCall::Kind::kLookUp)
        exchanges[segment.name] = std::make_shared<LookUp>(table, segment);
      else
        exchanges[segment.name] = std::make_shared<Head>(table, segment);
    }
  }
  return exchanges;
}

}  // namespace sf::engine
