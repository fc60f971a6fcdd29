// Members holds who has registered in a generation, by rank, and counts them by how far they are:
// whether all are up is asked with each of thousands of facts. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "coordinator/phases.h"

namespace weft {

struct Member {
  std::string host;
  int64_t pid = 0;
  MemberPhase phase = MemberPhase::kRegistered;
  bool suspect = false;  // its stream broke, or has not come back since a restart
  friend bool operator==(const Member&, const Member&) = default;
};

class Members final {
 public:
  // Null if the rank has not registered.
  const Member* Find(int rank) const;
  // False if it has, and then nothing changes.
  bool Add(int rank, const Member& member);
  // REQUIRES: the rank has registered.
  void SetPhase(int rank, MemberPhase phase);
  void SetSuspect(int rank, bool suspect);

  int size() const { return static_cast<int>(by_rank_.size()); }
  int up() const { return up_; }  // ready, or further
  int finished() const { return finished_; }
  int suspects() const { return suspects_; }
  const std::map<int, Member>& by_rank() const { return by_rank_; }

  friend bool operator==(const Members&, const Members&) = default;

 private:
  // Adds `sign` times the member to the counts.
  void Count(const Member& member, int sign);

  std::map<int, Member> by_rank_;
  int up_ = 0;
  int finished_ = 0;
  int suspects_ = 0;
};

}  // namespace weft
