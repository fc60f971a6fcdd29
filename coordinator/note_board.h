// NoteBoard: what the ranks of one generation have to say to each other before they have a
// communicator (proto/agent.proto, Note), kept for ranks whose stream breaks meanwhile. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/agent.pb.h"

namespace weft {

class NoteBoard {
 public:
  static constexpr size_t kMaxTopicBytes = 64;
  static constexpr size_t kMaxValueBytes = 4096;
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;      // of all notes
  static constexpr int64_t kMaxOrderBytes = int64_t{1} << 20;  // of the values in one order

  // Keeps what rank `from` of `world_size` says. InvalidArgument: a receiver that is not in the
  // world, a topic or value that is too long, or another note of this rank on the topic.
  // ResourceExhausted: more than kMaxBytes.
  absl::Status Put(const proto::Note& note, int from, int world_size);

  // Returns what `rank` has not been told yet, after the first `told` of its notes; as much as fits
  // into one order.
  proto::Notes For(int rank, size_t told) const;

 private:
  std::vector<proto::Note> notes_;                       // as they go out
  std::map<std::pair<std::string, int>, size_t> known_;  // by topic and sender
  std::map<int, std::vector<size_t>> inboxes_;           // by receiver
  int64_t bytes_ = 0;
};

}  // namespace weft
