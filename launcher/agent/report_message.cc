#include "launcher/agent/report_message.h"

#include <string>
#include <variant>

#include "launcher/machine/log_tail.h"

namespace weft {
namespace {

constexpr int kLastLines = 5;
constexpr size_t kLastLineBytes = 2000;

}  // namespace

proto::AgentReport MessageOf(const HostReport& report) {
  proto::AgentReport message;
  message.set_sequence(report.sequence);
  if (const auto* rank = std::get_if<RankEnd>(&report.what)) {
    message.mutable_rank_ended()->set_generation(rank->generation);
    proto::Cause& cause = *message.mutable_rank_ended()->mutable_cause();
    cause.set_rank(rank->rank);
    cause.set_signal(rank->signal);
    cause.set_exit_code(rank->exit_code);
    cause.set_message(rank->message);
    cause.set_in_doubt(rank->in_doubt);
    cause.set_is_elsewhere(rank->is_elsewhere);
    cause.set_seen_ms_ago(rank->seen_ms_ago);
    cause.set_lost_lease(rank->lost_lease);
    cause.set_last_stderr(LastReasons(rank->last_lines, kLastLines, kLastLineBytes));
  } else if (const auto* group = std::get_if<GroupEnd>(&report.what)) {
    message.mutable_group_ended()->set_generation(group->generation);
    message.mutable_group_ended()->set_clean(group->clean);
    message.mutable_group_ended()->mutable_cause()->set_rank(-1);
    message.mutable_group_ended()->mutable_cause()->set_message(group->message);
  } else if (const auto* wish = std::get_if<DaemonWish>(&report.what)) {
    message.mutable_daemon_wanted()->set_generation(wish->generation);
    message.mutable_daemon_wanted()->set_host(wish->host);
    for (const std::string& arg : wish->args) message.mutable_daemon_wanted()->add_args(arg);
  } else {
    message.mutable_save_requested()->set_leaves(std::get<SaveRequest>(report.what).leaves);
  }
  return message;
}

}  // namespace weft
