// SPDX-License-Identifier: Apache-2.0
// The trainer's half of flow control: which position is asked of which producer, when it is asked again, and what
// became of every one. Pure: no sockets, no threads, no clock; producers are small numbers, times are passed in.
//
// A position is wanted, asked, ready, taken, and trained or void at last. Lower positions are asked before higher ones,
// each of the producer with the fewest bytes outstanding. What a caller waits for passes every mark, so a full window
// can never block its own head.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sf::stream {

// Bytes of one rank. A sample under way counts as the largest seen so far, at first as `bound`.
struct Marks {
  uint64_t high = uint64_t{256} << 20;  // nothing is asked ahead that would take what is under way or ready over this
  uint64_t low = 0;                     // having met `high`, asking ahead goes on once no more than this is left
  uint64_t cap = 0;    // of all, taken ones included: asking ahead leaves room for samples of `bound`; 0: no cap
  uint64_t bound = 1;  // the most that one sample takes by its contract

  auto operator<=>(const Marks&) const = default;
};

// Of the positions of one rank. Each asked one is in exactly one of the four behind it.
struct Tally {
  uint64_t asked = 0, trained = 0, voids = 0;
  uint64_t in_flight = 0;   // answered, not yet trained
  uint64_t unanswered = 0;  // some of it may be under way
  // Apart from these:
  uint64_t unasked = 0;  // of `unanswered`: no producer was asked for it yet
  uint64_t again = 0;    // requests beyond a position's first: damaged, late, lost, or taken before
  uint64_t late = 0;     // answers to what nobody waits for any more

  // What does not add up; nullopt: asked = trained + voids + in_flight + unanswered.
  std::optional<std::string> wrong() const;
  auto operator<=>(const Tally&) const = default;
};
// Of the requests to one producer.
struct ProducerTally {
  uint64_t asked = 0, answered = 0;
  uint64_t again = 0;       // what it owed already, asked of it once more: beside `asked`
  uint64_t lost = 0;        // not answered when it was lost
  uint64_t overtaken = 0;   // answered by another first
  uint64_t unanswered = 0;  // asked = answered + lost + overtaken + unanswered

  std::optional<std::string> wrong() const;
  auto operator<=>(const ProducerTally&) const = default;
};

class Asking {
 public:
  struct Request {
    int producer = 0;
    uint64_t position = 0;
    bool now = false;   // a caller waits
    bool anew = false;  // asked of this producer before: what may still be under way there is given up
  };

  // `retry_s`: a position of which nothing came for so long is asked again.
  Asking(Marks marks, double retry_s) : marks_(marks), retry_s_(retry_s) {}

  void join(int producer);        // may be asked from now on; what a known one owes is asked of it anew
  void stop(int producer);        // is asked only if no other is there; what it owes may still come
  uint64_t lose(int producer);    // how many of its answers are lost; they are asked again elsewhere
  bool idle(int producer) const;  // owes nothing
  // What its heartbeat says: the position it computes, and how many of ours wait there.
  void says(int producer, std::optional<uint64_t> computing, uint64_t queued);

  void want(uint64_t position);
  void need(uint64_t position);  // a caller waits for it now; one that was taken is asked once more
  // What is to be asked now; counted as asked.
  std::vector<Request> requests(double now);

  bool expects(int producer, uint64_t position) const;
  void progress(int producer, uint64_t position, double now);  // part of an answer came
  void damaged(int producer, uint64_t position);               // asked anew of the same producer
  // Whole. False: late, nobody waits for it.
  bool answered(int producer, uint64_t position, uint64_t bytes, bool is_void, double now);
  void late() { ++late_; }
  int take(uint64_t position);  // Requires: ready. Who sent it.
  void trained(uint64_t end);   // what was taken below this position is trained

  bool waits_for(uint64_t position) const;  // it is wanted or asked
  size_t waiting() const;                   // how many are
  uint64_t held() const;                    // bytes ready and taken
  Tally tally() const;
  ProducerTally tally(int producer) const;
  // What does not add up: of a tally, or of the requests to all producers, which are one for each position that was
  // asked for and those of `again`.
  std::optional<std::string> wrong() const;

  auto operator<=>(const Asking&) const = default;

 private:
  enum class State { kWanted, kAsked, kReady, kTaken };
  struct Asked {
    double since = 0, progress = 0;
    bool anew = false;
    auto operator<=>(const Asked&) const = default;
  };
  struct Item {
    State state = State::kWanted;
    bool needed = false, urged = false, is_void = false;
    bool before = false;  // some producer was asked for it
    uint64_t bytes = 0;
    int from = -1;
    std::map<int, Asked> asked;
    auto operator<=>(const Item&) const = default;
  };
  struct Producer {
    bool live = false, stopping = false;
    double heard = 0;
    std::optional<uint64_t> computing;
    uint64_t queued = 0;
    ProducerTally tally;
    auto operator<=>(const Producer&) const = default;
  };
  struct Room;  // bytes that are spoken for while requests() goes on

  uint64_t expected() const { return largest_ ? largest_ : marks_.bound; }
  Room room() const;
  bool may_ask_ahead(const Room& room);
  std::optional<int> least_loaded(bool ahead, const std::map<int, Asked>& but) const;
  std::optional<Request> ask_again(uint64_t position, Item& item, double now);
  Request ask(int producer, uint64_t position, Item& item, double now);
  void settle(Item& item, int by);

  Marks marks_;
  double retry_s_, slowest_ = 0;
  uint64_t largest_ = 0;
  bool open_ = true;  // between the marks, asking ahead goes on until `high` is met
  std::map<uint64_t, Item> items_;
  std::map<int, Producer> producers_;
  uint64_t asked_ = 0, trained_ = 0, voids_ = 0, again_ = 0, late_ = 0;
};

}  // namespace sf::stream
