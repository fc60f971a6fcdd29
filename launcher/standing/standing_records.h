// StandingRecords is the folder in which a host's standing agent keeps what it has started, a small
// file per allocation, so that the one after it finds what goes on. It holds the folder's lock: one
// standing agent of a host's name at a time. Belongs to one thread.
//
// A file "allocation-<number>.json": {"format_version": 1, "machine": of this boot, "job_id",
// "allocation", "run_id", "run_folder", "host_slots", "slots", "ranks_user", "ranks_uid", "words":
// file of the agent's stderr, "words_from": where its own begin there, "end": {"exit_code",
// "signal", "last_words"} once it has ended}. It is written before the agent is started, and
// removed when weftd has acknowledged its end. It holds no process number: an agent is found by its
// environment (launcher/machine/leftovers.h), which no other process can come to have.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/machine/descriptor.h"
#include "launcher/standing/standing_agent.h"

namespace weft {

struct AllocationRecord {
  AllocationOrder order;
  std::string words = {};
  int64_t words_from = 0;
  std::optional<AllocationEnd> end = std::nullopt;
  friend bool operator==(const AllocationRecord&, const AllocationRecord&) = default;
};

std::string RecordText(const AllocationRecord& record, const std::string& machine);
// Empty if `text` is no record, is of another version, or of another machine or boot.
std::optional<AllocationRecord> ParseRecord(const std::string& text, const std::string& machine);

class StandingRecords {
 public:
  // Waits `patience_ms` for the one who has the folder. Unavailable, naming the process, if it
  // stays; FailedPrecondition if the folder is not this user's alone.
  static absl::StatusOr<StandingRecords> Open(const std::string& folder, const std::string& machine,
                                              int patience_ms);

  const std::string& folder() const { return folder_; }
  // Returns what an older standing agent has left; files that are no records are removed.
  std::vector<AllocationRecord> Read() const;
  absl::Status Write(const AllocationRecord& record) const;
  // Removes its words too, where they lie in this folder.
  void Remove(const AllocationRecord& record) const;
  // Gives the folder up, if nothing is recorded. To be called last.
  void RemoveIfEmpty() const;

 private:
  StandingRecords(std::string folder, std::string machine)
      : folder_(std::move(folder)), machine_(std::move(machine)) {}
  // False: somebody has the lock, or is just removing the folder.
  absl::StatusOr<bool> TryLock();
  std::string PathOf(int64_t allocation) const;

  std::string folder_;
  std::string machine_;
  Descriptor lock_;
};

}  // namespace weft
