#include "coordinator/culprit.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr size_t kNamedRanks = 8;

bool IsMeeting(MeetingAxis axis) {
  return axis >= MeetingAxis::kTrain;
}

bool IsStopped(const RankSeen& seen) {
  return seen.state == 'T' || seen.state == 't';
}

// Whether the two are in one group of that axis; all ranks meet by way of the coordinator.
bool AreTogether(const RankSeen& a, const RankSeen& b, MeetingAxis axis) {
  if (IsMeeting(axis)) return true;
  const auto index = static_cast<size_t>(axis);
  return a.page.groups[index].key != 0 && a.page.groups[index].key == b.page.groups[index].key;
}

int64_t CallsOf(const RankSeen& seen, MeetingAxis axis) {
  return seen.page.groups[static_cast<size_t>(axis)].calls;
}

// WaitGraph knows for each rank whom it waits for. Edges lead to ranks that have not come to the
// call that the waiting one is in.
class WaitGraph {
 public:
  explicit WaitGraph(absl::Span<const RankSeen> ranks) : ranks_(ranks) {
    waits_for_.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) AddEdges(i);
  }

  bool Waits(size_t i) const { return !waits_for_[i].empty(); }
  bool IsWaitedFor(size_t i) const {
    return std::any_of(waits_for_.begin(), waits_for_.end(), [&](const auto& peers) {
      return std::find(peers.begin(), peers.end(), i) != peers.end();
    });
  }
  bool AnyWaits() const {
    return std::any_of(waits_for_.begin(), waits_for_.end(),
                       [](const auto& peers) { return !peers.empty(); });
  }
  // A rank that waits for `i` itself.
  std::optional<size_t> WaiterOf(size_t i) const {
    for (size_t j = 0; j < waits_for_.size(); ++j) {
      const auto& peers = waits_for_[j];
      if (std::find(peers.begin(), peers.end(), i) != peers.end()) return j;
    }
    return std::nullopt;
  }

 private:
  void AddEdges(size_t i) {
    const PageCall& call = ranks_[i].page.call;
    for (size_t j = 0; j < ranks_.size(); ++j) {
      if (j != i && HoldsUp(ranks_[j], ranks_[i], call)) waits_for_[i].push_back(j);
    }
  }

  static bool HoldsUp(const RankSeen& other, const RankSeen& seen, const PageCall& call) {
    switch (call.kind) {
      case CallKind::kNone:
        return false;
      case CallKind::kExchange:
        return other.rank == call.peer;
      case CallKind::kDevice: {
        for (int axis = 0; axis < kMeetingAxes; ++axis) {
          const auto each = static_cast<MeetingAxis>(axis);
          const bool is_behind = CallsOf(other, each) < CallsOf(seen, each);
          if (!IsMeeting(each) && AreTogether(other, seen, each) && is_behind) return true;
        }
        return false;
      }
      default:
        return AreTogether(other, seen, call.axis) && CallsOf(other, call.axis) < call.sequence;
    }
  }

  absl::Span<const RankSeen> ranks_;
  std::vector<std::vector<size_t>> waits_for_;
};

std::string CallText(const PageCall& call) {
  switch (call.kind) {
    case CallKind::kNone:
      return "";
    case CallKind::kExchange:
      return call.peer < 0 ? "exchange" : absl::StrCat("exchange with rank ", call.peer);
    case CallKind::kDevice:
      return std::string(NameOf(call.kind));
    case CallKind::kMeeting:
      return absl::StrCat("wait for ", NameOf(call.axis));
    default:
      return absl::StrCat(NameOf(call.kind), " over ", NameOf(call.axis), " (call ", call.sequence,
                          ")");
  }
}

// "ranks 0 and 2 in all-reduce over tp (call 17), rank 3 in exchange with rank 2"
std::string WaitingText(absl::Span<const RankSeen> ranks, const WaitGraph& graph, int culprit) {
  std::map<std::string, std::vector<int>> by_call;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].rank != culprit && graph.Waits(i)) {
      by_call[CallText(ranks[i].page.call)].push_back(ranks[i].rank);
    }
  }
  std::vector<std::string> parts;
  for (const auto& [call, waiting] : by_call) {
    parts.push_back(absl::StrCat(RanksText(waiting), " in ", call));
  }
  return absl::StrJoin(parts, ", ");
}

// Steps are bounded by what steps take; elsewhere only what moves in no way stands still.
int64_t AgeOf(const RankSeen& seen) {
  const bool in_step = seen.page.phase == RankPhase::kStep || seen.page.phase == RankPhase::kEval;
  const int64_t age_ms = in_step ? seen.still_ms : seen.idle_ms;
  const bool in_call = seen.page.call.kind != CallKind::kNone;
  return in_call ? std::min(age_ms, seen.polls_still_ms) : age_ms;
}

// Returns whether a rank that waits for none of the ranks is at something of its own. Who is in a
// meeting to which all have come waits for the coordinator, who waits for the device for that; MPI
// does not say whom it waits for while it starts.
bool IsAtItsOwn(const RankSeen& seen) {
  if (seen.state == '-') return false;  // it has ended, which its parent says
  const CallKind kind = seen.page.call.kind;
  return kind != CallKind::kMeeting && kind != CallKind::kDevice &&
         seen.page.phase != RankPhase::kCommInit;
}

std::string StillText(const RankSeen& seen) {
  const std::string at = seen.page.action_text.empty()
                             ? absl::StrCat(NameOf(seen.page.phase))
                             : absl::StrCat("action ", seen.page.action_text);
  const std::string in = seen.sleeps_in.empty() || seen.sleeps_in == "0"
                             ? ""
                             : absl::StrCat(", in ", seen.sleeps_in, " of the kernel");
  if (seen.page.rank < 0) return absl::StrCat("it has not begun", in);
  if (seen.page.call.kind != CallKind::kNone) {
    return absl::StrCat("all have entered the call, and it alone does not poll", in);
  }
  return absl::StrCat("it waits for nobody and has stood still in ", at, in);
}

std::string DepartureText(const Departure& departure) {
  return absl::StrCat("in step ", departure.step, " it has made ", departure.calls, " of ",
                      departure.expected_calls, " calls over ", NameOf(departure.axis),
                      " that its schedule has by then");
}

Culprit Blame(absl::Span<const RankSeen> ranks, const WaitGraph& graph, size_t i,
              Evidence evidence) {
  const RankSeen& seen = ranks[i];
  Culprit culprit;
  culprit.rank = seen.rank;
  culprit.host = seen.host;
  culprit.phase = seen.page.phase;
  culprit.step = seen.page.step;
  culprit.collective = CallText(seen.page.call);
  culprit.waiting = WaitingText(ranks, graph, seen.rank);
  culprit.evidence = evidence;
  culprit.age_ms = seen.still_ms;
  if (culprit.collective.empty()) {
    if (const auto waiter = graph.WaiterOf(i)) {
      culprit.collective = CallText(ranks[*waiter].page.call);
    }
  }
  switch (evidence) {
    case Evidence::kStopped:
      culprit.why = absl::StrCat("its process is stopped (state ", std::string(1, seen.state),
                                 "; SIGCONT lets it go on)");
      break;
    case Evidence::kDeparted:
      culprit.why = DepartureText(seen.page.departure);
      culprit.collective =
          absl::StrCat("a collective over ", NameOf(seen.page.departure.axis), " that it skipped");
      break;
    case Evidence::kUninterruptible:
      culprit.why = absl::StrCat("its process cannot be woken (state D",
                                 seen.sleeps_in.empty() ? "" : ", in " + seen.sleeps_in, ")");
      culprit.age_ms = AgeOf(seen);
      break;
    case Evidence::kStandsStill:
    case Evidence::kNone:
      culprit.why = StillText(seen);
      culprit.age_ms = AgeOf(seen);
      break;
  }
  return culprit;
}

// The one of them that `is_it`, and has not moved for the longest time.
template <typename Is>
std::optional<size_t> Stillest(absl::Span<const RankSeen> ranks, const Is& is_it) {
  std::optional<size_t> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!is_it(i)) continue;
    if (!found || AgeOf(ranks[i]) > AgeOf(ranks[*found])) found = i;
  }
  return found;
}

}  // namespace

std::string RanksText(absl::Span<const int> ranks) {
  const size_t named = std::min(ranks.size(), kNamedRanks);
  const std::string noun = ranks.size() == 1 ? "rank " : "ranks ";
  if (named < ranks.size()) {
    return absl::StrCat(noun, absl::StrJoin(ranks.subspan(0, named), ", "), " and ",
                        ranks.size() - named, " more");
  }
  if (ranks.size() < 2) return absl::StrCat(noun, absl::StrJoin(ranks, ""));
  return absl::StrCat(noun, absl::StrJoin(ranks.subspan(0, ranks.size() - 1), ", "), " and ",
                      ranks.back());
}

Culprit FindCulprit(absl::Span<const RankSeen> ranks) {
  const WaitGraph graph(ranks);
  if (const auto i = Stillest(ranks, [&](size_t each) { return IsStopped(ranks[each]); })) {
    return Blame(ranks, graph, *i, Evidence::kStopped);
  }
  const auto departed =
      Stillest(ranks, [&](size_t each) { return ranks[each].page.departure.step != 0; });
  if (departed && graph.AnyWaits()) return Blame(ranks, graph, *departed, Evidence::kDeparted);
  // A chain of ranks that wait for each other ends at one that waits for none.
  const bool any_waits = graph.AnyWaits();
  const auto at_the_end = [&](size_t each) {
    return !graph.Waits(each) && IsAtItsOwn(ranks[each]) && (!any_waits || graph.IsWaitedFor(each));
  };
  const auto sleeps =
      Stillest(ranks, [&](size_t each) { return at_the_end(each) && ranks[each].state == 'D'; });
  if (sleeps) return Blame(ranks, graph, *sleeps, Evidence::kUninterruptible);
  if (const auto i = Stillest(ranks, at_the_end)) {
    return Blame(ranks, graph, *i, Evidence::kStandsStill);
  }
  Culprit nobody;
  nobody.waiting = WaitingText(ranks, graph, -1);
  nobody.why = any_waits ? "ranks wait for each other, and none is stopped or has departed from "
                           "its schedule"
                         : "no rank waits for another one";
  return nobody;
}

}  // namespace weft
