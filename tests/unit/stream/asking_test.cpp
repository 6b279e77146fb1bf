// SPDX-License-Identifier: Apache-2.0
// The trainer's half of flow control, alone, and both halves together over every order of events.
#include "stream/asking.h"

#include <deque>

#include "stream/flow.h"
#include "support.h"

namespace sf::stream {
namespace {

Marks marks(uint64_t high, uint64_t low = 0, uint64_t cap = 0) {
  return {.high = high, .low = low, .cap = cap, .bound = 1};
}

std::vector<uint64_t> positions_of(const std::vector<Asking::Request>& requests, int producer) {
  std::vector<uint64_t> positions;
  for (const auto& request : requests)
    if (request.producer == producer) positions.push_back(request.position);
  return positions;
}

void want(Asking& asking, uint64_t begin, uint64_t end) {
  for (uint64_t position = begin; position < end; ++position) asking.want(position);
}

TEST(AskingOf, PositionsAreSpreadByWhatEachProducerOwes) {
  Asking asking(marks(100), 5);
  asking.join(0);
  asking.join(1);
  want(asking, 0, 4);
  auto first = asking.requests(0);
  EXPECT_EQ(positions_of(first, 0), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(positions_of(first, 1), (std::vector<uint64_t>{1, 3}));
  for (uint64_t position : {1, 3}) asking.answered(1, position, 1, false, 0);
  want(asking, 4, 6);
  EXPECT_EQ(positions_of(asking.requests(0), 1), (std::vector<uint64_t>{4, 5})) << "producer 0 still owes two";
}

TEST(AskingOf, WhatALostProducerOwedIsAskedOfTheOthersAndShownAsLost) {
  Asking asking(marks(100), 5);
  asking.join(0);
  asking.join(1);
  want(asking, 0, 4);
  asking.requests(0);
  EXPECT_EQ(asking.lose(0), 2u);
  EXPECT_EQ(positions_of(asking.requests(0), 1), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(asking.tally(0).lost, 2u);
  EXPECT_EQ(asking.tally().again, 2u) << "what was lost is asked again";
  EXPECT_EQ(asking.wrong(), std::nullopt);
  for (uint64_t position : {0, 1, 2, 3}) EXPECT_TRUE(asking.answered(1, position, 1, false, 0));
  EXPECT_EQ(asking.wrong(), std::nullopt);
  EXPECT_EQ(asking.tally().in_flight, 4u);
}

TEST(AskingOf, AProducerThatJoinsLaterIsAsked) {
  Asking asking(marks(100), 5);
  want(asking, 0, 3);
  EXPECT_TRUE(asking.requests(0).empty());
  asking.join(4);
  EXPECT_EQ(positions_of(asking.requests(0), 4), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(AskingOf, ALateAnswerIsOvertakenByAnotherProducerAndCountedApart) {
  Asking asking(marks(100), 5);
  asking.join(0);
  asking.join(1);
  asking.need(7);
  ASSERT_EQ(positions_of(asking.requests(0), 0), std::vector<uint64_t>{7});
  asking.says(0, 7, 0);  // it computes it: nothing is lost
  EXPECT_TRUE(asking.requests(4).empty());
  EXPECT_EQ(positions_of(asking.requests(6), 1), std::vector<uint64_t>{7});
  EXPECT_TRUE(asking.answered(1, 7, 1, false, 7));
  EXPECT_FALSE(asking.answered(0, 7, 1, false, 8));
  EXPECT_EQ(asking.tally().late, 1u);
  EXPECT_EQ(asking.tally(0).overtaken, 1u);
  EXPECT_EQ(asking.tally().asked, 1u);
  EXPECT_EQ(asking.tally().wrong(), std::nullopt);
}

TEST(AskingOf, RequestsAreOneForEachPositionAndThoseAskedAgain) {
  Asking asking(marks(100), 5);
  want(asking, 0, 3);
  EXPECT_EQ(asking.tally().unasked, 3u);
  asking.join(0);
  asking.join(1);
  asking.requests(0);  // 0 and 2 of the first, 1 of the second
  asking.damaged(0, 0);
  asking.lose(1);
  EXPECT_EQ(asking.requests(0).size(), 2u);
  EXPECT_EQ(asking.tally().again, 2u);
  EXPECT_EQ(asking.tally(0).asked, 3u);
  EXPECT_EQ(asking.tally(0).again, 1u);
  EXPECT_TRUE(asking.answered(0, 0, 1, false, 0));
  asking.take(0);
  asking.need(0);  // once more
  asking.requests(0);
  EXPECT_EQ(asking.tally().again, 3u);
  EXPECT_EQ(asking.tally(0).asked, 4u);
  EXPECT_EQ(asking.tally().asked, 3u);
  EXPECT_EQ(asking.wrong(), std::nullopt);
}

TEST(AskingOf, AheadStopsAtTheHighMarkAndGoesOnAtTheLow) {
  Asking asking(marks(4, 1), 5);
  asking.join(0);
  want(asking, 0, 12);
  EXPECT_EQ(asking.requests(0).size(), 4u);
  for (uint64_t position = 0; position < 4; ++position) asking.answered(0, position, 1, false, 0);
  for (uint64_t position = 0; position < 3; ++position) {
    EXPECT_TRUE(asking.requests(0).empty()) << position << " taken: more than the low mark is left";
    asking.take(position);
  }
  EXPECT_EQ(asking.requests(0).size(), 3u);
}

TEST(AskingOf, TheCapHoldsWhateverIsTakenAndNotTrained) {
  Asking asking(marks(100, 100, 5), 5);
  asking.join(0);
  want(asking, 0, 12);
  EXPECT_EQ(asking.requests(0).size(), 5u);
  for (uint64_t position = 0; position < 5; ++position) {
    asking.answered(0, position, 1, false, 0);
    asking.take(position);
  }
  EXPECT_TRUE(asking.requests(0).empty());
  asking.trained(5);
  EXPECT_EQ(asking.requests(0).size(), 5u);
}

TEST(AskingOf, CountersThatDoNotAddUpAreSeen) {
  Asking asking(marks(100), 5);
  asking.join(0);
  want(asking, 0, 2);
  asking.requests(0);
  asking.answered(0, 0, 1, false, 0);
  asking.answered(0, 1, 1, true, 0);
  asking.take(0);
  asking.take(1);
  asking.trained(2);
  EXPECT_EQ(asking.tally().wrong(), std::nullopt);
  EXPECT_EQ(asking.tally().trained, 1u);
  EXPECT_EQ(asking.tally().voids, 1u);
  Tally spoilt = asking.tally();
  ++spoilt.trained;
  EXPECT_EQ(spoilt.wrong(), "asked 2 is not trained 2 + void 1 + in flight 0 + not yet answered 0");
}

// A run of W ranks and P producers, each sample of size 1. What may happen next in any order: a producer computes, a
// message arrives, a caller takes, all ranks train a window, a producer dies and is replaced.
struct Shape {
  int world, producers, rows, micro_batches;
  uint64_t high, low;
  bool capped;
  int kills;
};

class Model {
 public:
  explicit Model(const Shape& shape) : kills_(shape.kills), producers_(shape.producers) {
    for (int rank = 0; rank < shape.world; ++rank) {
      ranks_.emplace_back(marks(shape.high, shape.low, shape.capped ? share(shape) : 0), 5);
      taken_.push_back(0);
    }
    wires_.resize(static_cast<size_t>(shape.world * shape.producers));
    for (int p = 0; p < shape.producers; ++p) appear(shape, p);
    open_window(shape);
  }

  static uint64_t share(const Shape& shape) {
    return static_cast<uint64_t>((shape.micro_batches + shape.world - 1) / shape.world * shape.rows);
  }
  bool done() const { return window_ == kWindows; }
  // Every state that one event leads to.
  std::vector<Model> next(const Shape& shape) const {
    std::vector<Model> all;
    auto after = [&](auto&& event) {
      Model model = *this;
      if (!event(model)) return;
      model.settle(shape);
      all.push_back(std::move(model));
    };
    for (int p = 0; p < shape.producers; ++p) {
      after([&](Model& model) { return model.compute(shape, p); });
      for (int r = 0; r < shape.world; ++r) after([&](Model& model) { return model.arrive(shape, p, r); });
      if (kills_ > 0) after([&](Model& model) { return model.die(shape, p); });
    }
    for (int r = 0; r < shape.world; ++r) after([&](Model& model) { return model.take(shape, r); });
    return all;
  }
  void settle(const Shape& shape) {
    for (int r = 0; r < shape.world; ++r) call(shape, r);
    for (int r = 0; r < shape.world; ++r) ask(shape, r);
  }
  // What must hold at all times; the text says what does not.
  std::string broken(const Shape& shape) const {
    for (const Asking& rank : ranks_) {
      if (rank.wrong()) return *rank.wrong();
      if (shape.capped && rank.held() > share(shape)) return fmt::format("{} samples are held", rank.held());
    }
    return "";
  }
  uint64_t trained() const {
    uint64_t sum = 0;
    for (const Asking& rank : ranks_) sum += rank.tally().trained;
    return sum;
  }
  auto operator<=>(const Model&) const = default;

 private:
  static constexpr uint64_t kWindows = 2;
  static std::string name(int rank) { return std::string(1, static_cast<char>('a' + rank)); }
  std::deque<uint64_t>& wire(const Shape& shape, int p, int r) {
    return wires_[static_cast<size_t>(p * shape.world + r)];
  }
  // The positions of a rank in one window, in the order in which it takes them.
  static std::vector<uint64_t> of_rank(const Shape& shape, uint64_t window, int rank) {
    std::vector<uint64_t> mine;
    for (int k = rank; k < shape.micro_batches; k += shape.world)
      for (int i = 0; i < shape.rows; ++i)
        mine.push_back(window * static_cast<uint64_t>(shape.micro_batches * shape.rows) +
                       static_cast<uint64_t>(k * shape.rows + i));
    return mine;
  }
  void appear(const Shape& shape, int p) {
    producers_[static_cast<size_t>(p)] = Flow();
    for (int r = 0; r < shape.world; ++r) {
      producers_[static_cast<size_t>(p)].join(name(r), 1);  // less than any mark
      ranks_[static_cast<size_t>(r)].join(p);
    }
  }
  void open_window(const Shape& shape) {
    for (int r = 0; r < shape.world; ++r)
      for (uint64_t ahead : {window_, window_ + 1})
        for (uint64_t position : of_rank(shape, ahead, r))
          if (ahead < kWindows) ranks_[static_cast<size_t>(r)].want(position);
    settle(shape);
  }
  // The caller of get() waits for its next position.
  void call(const Shape& shape, int r) {
    auto mine = of_rank(shape, window_, r);
    if (!done() && taken_[static_cast<size_t>(r)] < mine.size())
      ranks_[static_cast<size_t>(r)].need(mine[taken_[static_cast<size_t>(r)]]);
  }
  void ask(const Shape& shape, int r) {
    for (const Asking::Request& request : ranks_[static_cast<size_t>(r)].requests(0)) {
      Ask ask;
      (request.now ? ask.now : ask.want).push_back(request.position);
      if (request.anew) ask.landed.push_back(request.position);
      producers_[static_cast<size_t>(request.producer)].ask(name(r), ask);
    }
    (void)shape;
  }
  bool compute(const Shape& shape, int p) {
    Flow& flow = producers_[static_cast<size_t>(p)];
    auto position = flow.next();
    if (!position) return false;
    for (const std::string& peer : flow.serve(*position, 1)) wire(shape, p, peer[0] - 'a').push_back(*position);
    return true;
  }
  bool arrive(const Shape& shape, int p, int r) {
    auto& messages = wire(shape, p, r);
    if (messages.empty()) return false;
    ranks_[static_cast<size_t>(r)].answered(p, messages.front(), 1, false, 0);
    messages.pop_front();
    return true;
  }
  bool take(const Shape& shape, int r) {
    Asking& rank = ranks_[static_cast<size_t>(r)];
    size_t& taken = taken_[static_cast<size_t>(r)];
    auto mine = of_rank(shape, window_, r);
    if (done() || taken >= mine.size() || rank.waits_for(mine[taken])) return false;
    uint64_t position = mine[taken++];
    producers_[static_cast<size_t>(rank.take(position))].ask(name(r), {{}, {}, {position}});
    for (int other = 0; other < shape.world; ++other)
      if (taken_[static_cast<size_t>(other)] < of_rank(shape, window_, other).size()) return true;
    ++window_;
    for (Asking& each : ranks_) each.trained(window_ * static_cast<uint64_t>(shape.micro_batches * shape.rows));
    std::fill(taken_.begin(), taken_.end(), 0);
    open_window(shape);
    return true;
  }
  bool die(const Shape& shape, int p) {
    --kills_;
    for (int r = 0; r < shape.world; ++r) {
      wire(shape, p, r).clear();
      ranks_[static_cast<size_t>(r)].lose(p);
    }
    appear(shape, p);
    return true;
  }

  int kills_;
  uint64_t window_ = 0;
  std::vector<Asking> ranks_;
  std::vector<size_t> taken_;
  std::vector<Flow> producers_;
  std::vector<std::deque<uint64_t>> wires_;
};

// How many states there are; "" or what is wrong with one of them.
std::string explore(const Shape& shape, size_t& states) {
  Model first(shape);
  std::set<Model> known{first};
  std::vector<Model> open{first};
  while (!open.empty()) {
    Model model = std::move(open.back());
    open.pop_back();
    if (std::string wrong = model.broken(shape); !wrong.empty()) return wrong;
    std::vector<Model> next = model.next(shape);
    if (model.done()) {
      if (model.trained() != 2u * static_cast<uint64_t>(shape.rows * shape.micro_batches))
        return fmt::format("{} positions were trained", model.trained());
      continue;
    }
    if (next.empty()) return "nothing can happen any more, and the run is not done";
    for (Model& one : next)
      if (known.insert(one).second) open.push_back(std::move(one));
  }
  states += known.size();
  return "";
}

TEST(FlowModel, NoOrderOfEventsIsADeadlockForAnyWorldWindowAndMarks) {
  size_t states = 0;
  for (int world : {1, 2})
    for (int rows : {1, 2})
      for (int micro_batches : {1, 2, 3})
        for (auto [high, low] : std::vector<std::pair<uint64_t, uint64_t>>{{1, 0}, {2, 1}, {3, 3}})
          for (bool capped : {false, true}) {
            if (world * rows * micro_batches > 6) continue;
            Shape shape{world, 1, rows, micro_batches, high, low, capped, 0};
            EXPECT_EQ(explore(shape, states), "") << world << " ranks, " << rows << " rows, " << micro_batches
                                                  << " micro-batches, marks " << high << " " << low << " " << capped;
          }
  EXPECT_GT(states, 1000u);
}

TEST(FlowModel, NoDeathOfAProducerAtAnyMomentIsADeadlockOrTrainsAPositionTwice) {
  size_t states = 0;
  for (auto [high, low] : std::vector<std::pair<uint64_t, uint64_t>>{{1, 0}, {2, 1}})
    for (int producers : {1, 2})
      for (bool capped : {false, true}) {
        Shape shape{1, producers, 1, 3, high, low, capped, 2};
        EXPECT_EQ(explore(shape, states), "")
            << producers << " producers, marks " << high << " " << low << " " << capped;
      }
  Shape two{2, 2, 1, 2, 2, 1, true, 1};
  EXPECT_EQ(explore(two, states), "");
  EXPECT_GT(states, 1000u);
  RecordProperty("states", static_cast<int>(states));
}

}  // namespace
}  // namespace sf::stream
