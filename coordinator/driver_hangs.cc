// The driver's part that has to do with hangs: while nothing moves it asks the agents what their
// ranks are at, has the stacks taken once a culprit is known, and only then ends the generation.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/driver.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int64_t kStacksMs = 2000;
constexpr int64_t kStacksPatienceMs = 2500;  // until the answer has come
constexpr int64_t kKillPatienceMs = 10000;   // of a group that was told to end
constexpr int64_t kLooksPerQuiet = 20;       // of long waits

RankSeen Read(const proto::RankSeen& message, const std::string& host) {
  RankSeen seen;
  seen.rank = message.rank();
  seen.host = host;
  seen.state = message.state().empty() ? '?' : message.state()[0];
  seen.sleeps_in = message.sleeps_in();
  seen.still_ms = message.still_ms();
  seen.idle_ms = message.idle_ms();
  seen.polls_still_ms = message.polls_still_ms();
  seen.page.busy_ms = message.busy_ms();
  PageView& page = seen.page;
  if (!message.has_page()) return seen;
  page.rank = message.rank();
  page.pid = message.pid();
  page.phase = static_cast<RankPhase>(message.phase());
  page.step = message.step();
  page.action_text = message.action();
  page.call = {static_cast<CallKind>(message.call_kind()),
               static_cast<MeetingAxis>(message.call_axis()), message.call_sequence(),
               message.call_peer()};
  const int axes = std::min({message.group_keys_size(), message.group_calls_size(), kMeetingAxes});
  for (int axis = 0; axis < axes; ++axis) {
    page.groups[static_cast<size_t>(axis)] = {message.group_keys(axis), message.group_calls(axis)};
  }
  page.departure = {message.departure_step(), static_cast<MeetingAxis>(message.departure_axis()),
                    message.departure_expected(), message.departure_calls()};
  return seen;
}

// A call's axis is an index; a peer's page may say anything.
bool IsSane(const proto::RankSeen& message) {
  const auto is_axis = [](int axis) { return axis >= 0 && axis < kMeetingAxes; };
  return is_axis(message.call_axis()) && is_axis(message.departure_axis());
}

}  // namespace

void Driver::WatchForHangs() {
  if (broken_) return;
  FenceHosts();
  if (look_.verdict) return PassVerdict();
  if (!hangs_.IsQuiet(job_, Now())) return LookForSlowRank();
  const bool have_all = look_.asked_ms != 0 && HaveAll([&](const std::string& machine) {
                          return look_.seen.count(machine) > 0;
                        });
  if (have_all) Judge();
  const int64_t quiet_ms = Now() - hangs_.moved_ms();
  const int64_t every_ms = std::max(kLookAtRanksEveryMs, quiet_ms / kLooksPerQuiet);
  if (!look_.verdict && Now() - look_.asked_ms >= every_ms) AskRanks();
}

// While all is well, ranks are looked at now and then.
void Driver::LookForSlowRank() {
  if (job_.generation.phase != GenerationPhase::kTraining) {
    look_.asked_ms = 0;
    return;
  }
  const bool have_all = look_.asked_ms != 0 && HaveAll([&](const std::string& machine) {
                          return look_.seen.count(machine) > 0;
                        });
  if (have_all) {
    if (const std::optional<SlowRank> slow = slow_.Look(look_.asked_ms, TakeSeen())) {
      Happened(RankSlow{.generation = job_.generation.number,
                        .rank = slow->rank,
                        .host = slow->host,
                        .share_percent = static_cast<int>(100 * slow->share),
                        .times_tenths = static_cast<int>(std::min(10 * slow->times, 10000.0)),
                        .since_step = slow->since_step});
    }
  }
  const int64_t since_ms = std::max(look_.asked_ms, clocks_.generation_since_ms);
  if (Now() - since_ms >= kLookForSlowMs) AskRanks();
}

std::vector<RankSeen> Driver::TakeSeen() {
  std::vector<RankSeen> ranks;
  for (auto& [machine, seen] : std::exchange(look_.seen, {})) {
    ranks.insert(ranks.end(), seen.begin(), seen.end());
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankSeen& a, const RankSeen& b) { return a.rank < b.rank; });
  return ranks;
}

void Driver::AskRanks() {
  ++look_.number;
  look_.asked_ms = Now();
  look_.seen.clear();
  proto::AgentOrder order;
  order.mutable_look_at_ranks()->set_generation(job_.generation.number);
  order.mutable_look_at_ranks()->set_number(look_.number);
  for (const HostShare& share : job_.generation.shares) {
    Agent* const agent = AgentOf(share.machine);
    if (agent != nullptr && !share.gone) outgoing_.ToAgent(agent->port, order);
  }
}

bool Driver::HaveAll(const std::function<bool(const std::string&)>& has_answered) const {
  const auto& shares = job_.generation.shares;
  return std::all_of(shares.begin(), shares.end(), [&](const HostShare& share) {
    return share.gone || has_answered(share.machine);
  });
}

void Driver::OnRanksSeen(const Agent& agent, const proto::RanksSeen& seen) {
  if (seen.generation() != job_.generation.number || seen.number() != look_.number) return;
  std::vector<RankSeen>& ranks = look_.seen[agent.machine];
  ranks.clear();
  for (const proto::RankSeen& each : seen.ranks()) {
    if (IsSane(each)) ranks.push_back(Read(each, agent.host));
  }
}

// Who is not to blame for long enough yet may still go on: it is only slow.
void Driver::Judge() {
  std::vector<RankSeen> ranks = TakeSeen();
  // A stopped process is known for what it is.
  for (RankSeen& seen : ranks) {
    const bool steps = seen.page.phase == RankPhase::kStep || seen.page.phase == RankPhase::kEval;
    if (hangs_.KnowsSteps() || !steps || seen.state == 'T' || seen.state == 't') continue;
    seen.still_ms = std::min(seen.still_ms, seen.idle_ms);
  }
  const Culprit culprit = FindCulprit(ranks);
  const int64_t budget_ms = BudgetMs(culprit, hangs_.StepBudgetMs(job_.predicted_step_s));
  if (culprit.rank < 0 || std::min(culprit.age_ms, Now() - hangs_.moved_ms()) < budget_ms) return;
  Hung hung{.generation = job_.generation.number, .rank = culprit.rank, .host = culprit.host};
  hung.hang = {.phase = std::string(NameOf(culprit.phase)),
               .step = culprit.step,
               .collective = culprit.collective,
               .why = culprit.why,
               .waiting = culprit.waiting,
               .age_ms = culprit.age_ms};
  LogWarning(absl::StrFormat(
      "rank %d (%s) hangs in %s, %s: %s, for %.1f s (budget %.1f s); its "
      "generation ends once stacks are taken",
      hung.rank, hung.host, hung.hang.phase, hung.hang.collective, hung.hang.why,
      static_cast<double>(culprit.age_ms) / 1000, static_cast<double>(budget_ms) / 1000));
  look_.verdict = std::move(hung);
  look_.verdict_ms = Now();
  look_.stacks_from.clear();
  proto::AgentOrder order;
  order.mutable_take_stacks()->set_generation(job_.generation.number);
  order.mutable_take_stacks()->set_number(++look_.number);
  order.mutable_take_stacks()->set_limit_ms(kStacksMs);
  for (const HostShare& share : job_.generation.shares) {
    Agent* const agent = AgentOf(share.machine);
    if (agent != nullptr && !share.gone) outgoing_.ToAgent(agent->port, order);
  }
}

void Driver::OnStacksTaken(const Agent& agent, const proto::StacksTaken& taken) {
  const bool is_due = look_.verdict && taken.generation() == look_.verdict->generation &&
                      taken.number() == look_.number;
  if (!is_due || !look_.stacks_from.insert(agent.machine).second) return;
  if (!taken.file().empty()) look_.verdict->hang.stacks.push_back(taken.file());
}

// The verdict stands, whatever moves while stacks are taken.
void Driver::PassVerdict() {
  const bool is_over = job_.generation.number != look_.verdict->generation;
  const bool have_all =
      HaveAll([&](const std::string& machine) { return look_.stacks_from.count(machine) > 0; });
  if (!is_over && !have_all && Now() - look_.verdict_ms < kStacksPatienceMs) return;
  const Hung hung = *std::exchange(look_.verdict, std::nullopt);
  look_.asked_ms = 0;
  if (!is_over) Happened(hung);
}

// An agent that is heard, but cannot prove that its share is gone, has a process that no signal
// ends. It is granted no further lease; when that is over, the host counts as lost.
void Driver::FenceHosts() {
  const Generation& generation = job_.generation;
  if (generation.phase != GenerationPhase::kStopping || !generation.cause) return;
  if (Now() - clocks_.generation_since_ms < kKillPatienceMs) return;
  const std::vector<HostShare> shares = generation.shares;
  for (const HostShare& share : shares) {
    const auto stream = agent_of_machine_.find(share.machine);
    if (share.gone || stream == agent_of_machine_.end()) continue;
    if (job_.fenced.count(share.machine) > 0) continue;
    leases_.Dismiss(stream->second);
    LogWarning(absl::StrCat("host ", share.host, " is fenced: processes there cannot be ended"));
    Happened(HostFenced{generation.number, share.machine,
                        absl::StrFormat("processes there were not gone %g s after they were to end",
                                        kKillPatienceMs / 1000.0)});
  }
}

}  // namespace weft
