#include "coordinator/members.h"

#include "plan/errors.h"

namespace weft {

const Member* Members::Find(int rank) const {
  const auto found = by_rank_.find(rank);
  return found == by_rank_.end() ? nullptr : &found->second;
}

bool Members::Add(int rank, const Member& member) {
  const bool is_new = by_rank_.try_emplace(rank, member).second;
  if (is_new) Count(member, 1);
  return is_new;
}

void Members::SetPhase(int rank, MemberPhase phase) {
  const auto found = by_rank_.find(rank);
  CHECK(found != by_rank_.end());
  Count(found->second, -1);
  found->second.phase = phase;
  Count(found->second, 1);
}

void Members::SetSuspect(int rank, bool suspect) {
  const auto found = by_rank_.find(rank);
  CHECK(found != by_rank_.end());
  Count(found->second, -1);
  found->second.suspect = suspect;
  Count(found->second, 1);
}

void Members::Count(const Member& member, int sign) {
  if (member.phase != MemberPhase::kRegistered) up_ += sign;
  if (member.phase == MemberPhase::kFinished) finished_ += sign;
  if (member.suspect) suspects_ += sign;
}

}  // namespace weft
