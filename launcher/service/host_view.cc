#include "launcher/service/host_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "launcher/service/harmless.h"
#include "launcher/service/job_view.h"
#include "launcher/service/text_table.h"
#include "plan/search/describe.h"

namespace weft {

std::string HostState(const v1::Host& host, int64_t now_unix_ms) {
  if (!host.present()) return "absent";
  if (host.leaving()) return "leaving";
  if (host.drained()) return "drained";
  if (host.left_out_until_unix_ms() > now_unix_ms) {
    return absl::StrCat("left out ", AgeText(host.left_out_until_unix_ms() - now_unix_ms));
  }
  // Its standing agent is too old, say: weftd's reason says why.
  const bool is_left_out_no_more = host.left_out_until_unix_ms() > 0;
  if (!host.reason().empty() && !is_left_out_no_more) return "not used";
  return host.slots_used() >= host.slots() ? "full" : "ready";
}

namespace {

// weftd's reason may name the state itself: "drained: disk".
std::string WhyOf(const v1::Host& host, absl::string_view state) {
  absl::string_view why = host.reason();
  const bool is_named = absl::ConsumePrefix(&why, state) ||
                        (state == "leaving" && absl::ConsumePrefix(&why, "leaves"));
  if (is_named) absl::ConsumePrefix(&why, ": ");
  return std::string(why);
}

}  // namespace

std::string HostsTable(const std::vector<v1::Host>& hosts, int64_t now_unix_ms, int width) {
  const std::vector<TableColumn> columns = {{"HOST", 40, 8},   {"OWNER", 16, 5}, {"STATE", 16, 8},
                                            {"SLOTS", 11, 11}, {"GPUS", 5, 5},   {"MEMORY", 10, 10},
                                            {"JOBS", 40, 8},   {"WHY", 200, 8}};
  std::vector<std::vector<std::string>> rows;
  for (const v1::Host& host : hosts) {
    const std::string state = HostState(host, now_unix_ms);
    rows.push_back({host.host(), host.owner(), state,
                    absl::StrCat(host.slots_used(), "/", host.slots()),
                    host.gpus() > 0 ? absl::StrCat(host.gpus()) : "",
                    host.memory_bytes() > 0 ? BytesText(host.memory_bytes()) : "",
                    absl::StrJoin(host.job_ids(), ","), WhyOf(host, state)});
  }
  return TableText(columns, rows, width);
}

std::string HostLine(const v1::Host& host, int64_t now_unix_ms) {
  const std::string state = HostState(host, now_unix_ms);
  const std::string why = WhyOf(host, state);
  std::string text = absl::StrCat(host.host(), ": ", state);
  if (!why.empty()) absl::StrAppend(&text, " (", why, ")");
  absl::StrAppend(&text, ", ", host.slots_used(), " of ", host.slots(), " slots used");
  if (host.job_ids_size() > 0) absl::StrAppend(&text, " by ", absl::StrJoin(host.job_ids(), ", "));
  return absl::StrCat(Harmless(text), "\n");
}

}  // namespace weft
