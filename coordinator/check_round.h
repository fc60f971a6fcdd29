// CheckRound: the hosts that are being checked at the moment, together, since they dial each other.
// It says whose turn it is: every host opens a door for the others, all are told of all doors, each
// says what it has found. Nothing of it is journaled but that: a coordinator that comes back begins
// another round. Pure; belongs to one thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace weft {

// Returns which doors a host dials, counted from its own place in the order of names, in a ring:
// all others where these are few (kMostPeers), else those 1, 2, 4, 8 and so on further (the fingers
// of Chord: Stoica et al., SIGCOMM'01). Pairs grow with n log n so; each door is still dialled by
// log2(n) hosts near and far, so that a dead one has that many witnesses, and a network that is cut
// in two at any place of the order has some across it. `has_own`: one of the doors is the host's.
std::vector<int64_t> DialOffsets(int64_t doors, bool has_own);

class CheckRound {
 public:
  struct Part {
    std::string host;
    bool pairs_only = false;  // checked before: it meets the new ones alone
    int64_t stream = 0;       // of its agent: on another one it knows nothing of the round
    bool opened = false;
    std::string address = {};  // empty: it has none
    int port = 0;
    bool told_peers = false;
    bool done = false;
  };

  bool is_on() const { return number_ > 0; }
  int64_t number() const { return number_; }
  const std::map<std::string, Part>& parts() const { return parts_; }
  bool has_peers() const { return parts_.size() > 1; }

  // REQUIRES: number is greater than that of any round before; there are parts.
  void Begin(int64_t number, int64_t now_ms, std::map<std::string, Part> parts);
  void End() { number_ = 0; }

  // These ignore machines that have no part in it.
  void Opened(const std::string& machine, const std::string& address, int port);
  void Done(const std::string& machine);  // it has said what there is, or is gone

  // A machine that is to be told of the others' doors.
  struct Turn {
    std::string machine;
    std::vector<std::string> peers;  // that it dials
    int dialled_by = 0;              // how many dial it
  };
  // Returns whose turn it is now: once all have opened, or kOpenMs has passed; each once. Everybody
  // dials DialOffsets of those that have opened.
  std::vector<Turn> ToTell(int64_t now_ms);

  // Machines that have not said anything for kAnswerMs.
  std::vector<std::string> Silent(int64_t now_ms) const;
  bool IsOver() const;

  static constexpr size_t kMostPeers = 64;
  static constexpr int64_t kOpenMs = 1500;
  static constexpr int64_t kCheckMs = 5000;   // an agent's own limit
  static constexpr int64_t kAnswerMs = 8000;  // more than the two, for a busy host

 private:
  std::vector<std::string> PeersOf(const std::string& machine,
                                   absl::Span<const std::string* const> open) const;

  int64_t number_ = 0;
  int64_t since_ms_ = 0;
  std::map<std::string, Part> parts_;  // by machine
};

}  // namespace weft
