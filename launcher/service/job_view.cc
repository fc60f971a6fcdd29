#include "launcher/service/job_view.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "launcher/service/harmless.h"
#include "launcher/service/text_table.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

constexpr int64_t kStepEveryMs = 1000;
constexpr size_t kMostReasonLines = 8;
constexpr size_t kNameColumns = 12;

std::string TimeText(int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

std::string StepText(const v1::Job& job) {
  return job.steps() > 0 ? absl::StrCat(job.step(), "/", job.steps()) : "";
}

std::string NodesText(const v1::Job& job) {
  if (job.brings_hosts()) return "own";
  return absl::StrCat(job.allocations_size(), "/", job.nodes());
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// "  phase       RUNNING", with further lines indented.
void AddField(absl::string_view name, const std::string& value, std::string* text) {
  if (value.empty()) return;
  std::string lead = absl::StrCat("  ", name, std::string(kNameColumns - name.size(), ' '));
  for (const std::string& line : HarmlessLines(value, kMostReasonLines)) {
    absl::StrAppend(text, lead, line, "\n");
    lead.assign(lead.size(), ' ');
  }
}

std::string AllocationText(const v1::Job::Allocation& allocation) {
  return absl::StrCat(allocation.host(), allocation.slots_size() == 1 ? " slot " : " slots ",
                      absl::StrJoin(allocation.slots(), ","));
}

std::string HostNames(const v1::Job& job) {
  return absl::StrJoin(job.allocations(), "\n",
                       [](std::string* text, const v1::Job::Allocation& allocation) {
                         absl::StrAppend(text, AllocationText(allocation));
                       });
}

std::string LayoutWords(const v1::Job& job) {
  const std::map<std::string, std::string> sorted(job.layout().begin(), job.layout().end());
  return absl::StrJoin(sorted, " ", absl::PairFormatter("="));
}

std::string CommandWords(const v1::Job& job) {
  std::string words = job.file();
  for (const std::string& each : job.overrides()) absl::StrAppend(&words, " --set ", each);
  return words;
}

// The first cause, and of a hang where it was and who waited.
std::string LostText(const v1::RankLost& lost) {
  std::string text = lost.rank() >= 0 ? absl::StrCat("lost rank ", lost.rank()) : "lost a rank";
  if (!lost.host().empty()) absl::StrAppend(&text, " on ", lost.host());
  absl::StrAppend(&text, ": ", lost.reason());
  if (lost.phase().empty()) return text;
  absl::StrAppend(&text, "\nin ", lost.phase());
  if (lost.step() > 0) absl::StrAppend(&text, " ", lost.step());
  if (!lost.collective().empty()) absl::StrAppend(&text, ", ", lost.collective());
  if (!lost.waiting().empty()) absl::StrAppend(&text, "\nwaiting: ", lost.waiting());
  if (!lost.did().empty()) absl::StrAppend(&text, "\nweft: ", lost.did());
  return text;
}

// How slow it is has been said by the phase's reason.
std::string SlowText(const v1::SlowRank& slow) {
  const std::string since =
      slow.since_step() > 0 ? absl::StrCat(" since step ", slow.since_step()) : "";
  if (slow.rank() < 0) return absl::StrCat("no rank is slow", since);
  return absl::StrCat("slow", since, ": rank ", slow.rank(), " on ", slow.host());
}

std::string WhatText(const v1::Event& event) {
  switch (event.event_case()) {
    case v1::Event::kPhase:
      return absl::StrCat(event.phase().phase(), event.phase().reason().empty() ? "" : ": ",
                          event.phase().reason());
    case v1::Event::kStep: {
      const v1::Step& step = event.step();
      std::string text = absl::StrFormat("step %d  loss %.4f", step.step(), step.loss());
      if (step.has_valid_loss()) absl::StrAppendFormat(&text, "  valid %.4f", step.valid_loss());
      if (step.step_s() > 0) {
        absl::StrAppendFormat(&text, "  %.0f tokens/s",
                              static_cast<double>(step.tokens()) / step.step_s());
      }
      return absl::StrCat(text, step.skipped() ? "  skipped" : "",
                          step.stopping() ? "  stopping" : "");
    }
    case v1::Event::kCommitted:
      return absl::StrCat("saved step ", event.committed().step(), " (",
                          BytesText(event.committed().bytes()), ")");
    case v1::Event::kLost:
      return LostText(event.lost());
    case v1::Event::kNotSaved:
      return absl::StrCat("step ", event.not_saved().step(),
                          " could not be saved: ", event.not_saved().reason(), "; saved is step ",
                          event.not_saved().saved_step());
    case v1::Event::kHostChecked: {
      const auto& results = event.host_checked().results();
      const auto broken = std::count_if(results.begin(), results.end(), [](const auto& result) {
        return result.severity() == v1::HostChecked::Result::BROKEN;
      });
      const int unreached = event.host_checked().unreached_size();
      std::string text = absl::StrCat("host ", event.host_checked().host(), " is checked: ");
      if (broken == 0 && unreached == 0) return absl::StrCat(text, "well");
      return absl::StrCat(text, broken, " broken, ", unreached, " hosts not reached");
    }
    case v1::Event::kHost:
      return absl::StrCat("host ", event.host().host().host(), ": ", event.host().what());
    case v1::Event::kNotWritten:
      return absl::StrCat("not written: ", event.not_written().what());
    case v1::Event::kRankSlow:
      return SlowText(event.rank_slow());
    case v1::Event::EVENT_NOT_SET:
      return "something that this weft does not know yet; update it";
  }
  return "";
}

}  // namespace

bool IsJobId(absl::string_view text) {
  return absl::ConsumePrefix(&text, "job-") && !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char each) {
           return absl::ascii_isdigit(static_cast<unsigned char>(each));
         });
}

bool IsOver(const std::string& phase) {
  return phase == "SUSPENDED" || phase == "COMPLETED" || phase == "FAILED" || phase == "CANCELLED";
}

std::string AgeText(int64_t ms) {
  const int64_t seconds = std::max<int64_t>(0, ms) / 1000;
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrCat(seconds, "s");
  if (hours == 0) return absl::StrCat(minutes, "m");
  if (hours < 24) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
}

std::string JobsTable(const std::vector<v1::Job>& jobs, int64_t now_unix_ms, int width) {
  const std::vector<TableColumn> columns = {{"JOB"},           {"NAME", 24, 6}, {"OWNER", 16, 5},
                                            {"PHASE", 12, 12}, {"STEP", 17, 9}, {"HOSTS", 9, 9},
                                            {"AGE", 8, 8},     {"WHY", 200, 8}};
  std::vector<std::vector<std::string>> rows;
  for (const v1::Job& job : jobs) {
    const int64_t until_ms = job.ended_unix_ms() > 0 ? job.ended_unix_ms() : now_unix_ms;
    rows.push_back({job.job_id(), job.name(), job.owner(), job.phase(), StepText(job),
                    NodesText(job), AgeText(until_ms - job.submitted_unix_ms()),
                    FirstLine(job.reason())});
  }
  return TableText(columns, rows, width);
}

std::string JobSheet(const v1::Job& job, int64_t now_unix_ms) {
  std::string text = Harmless(job.job_id());
  if (!job.name().empty()) absl::StrAppend(&text, " (", Harmless(job.name()), ")");
  absl::StrAppend(&text, "\n");
  AddField("phase", absl::StrCat(job.phase(), job.reason().empty() ? "" : ": ", job.reason()),
           &text);
  if (job.queue_place() > 0) AddField("queue", absl::StrCat("place ", job.queue_place()), &text);
  AddField("owner", job.owner(), &text);
  if (job.steps() > 0) {
    AddField("step", absl::StrCat(job.step(), " of ", job.steps(), ", saved ", job.saved_step()),
             &text);
  }
  if (job.generation() > 0) {
    AddField("generation",
             absl::StrCat(job.generation(), ", ", job.restarts_left(), " restarts left"), &text);
  }
  AddField("layout", LayoutWords(job), &text);
  if (job.planned_bytes() > 0) {
    AddField("memory",
             absl::StrCat("planned ", BytesText(job.planned_bytes()), " a rank",
                          job.peak_bytes() > 0 ? ", seen " : "",
                          job.peak_bytes() > 0 ? BytesText(job.peak_bytes()) : ""),
             &text);
  }
  if (job.predicted_step_s() > 0) {
    AddField("predicted", absl::StrCat(SecondsText(job.predicted_step_s()), " a step"), &text);
  }
  AddField("hosts", job.brings_hosts() ? "its own" : HostNames(job), &text);
  AddField("priority", job.priority() == 0 ? "" : absl::StrCat(job.priority()), &text);
  AddField("run folder", job.run_folder(), &text);
  AddField("from", CommandWords(job), &text);
  if (job.submitted_unix_ms() > 0) {
    AddField("submitted",
             absl::StrCat(TimeText(job.submitted_unix_ms()), ", ",
                          AgeText(now_unix_ms - job.submitted_unix_ms()), " ago"),
             &text);
  }
  if (job.ended_unix_ms() > 0) AddField("ended", TimeText(job.ended_unix_ms()), &text);
  return text;
}

std::string JobLine(const v1::Job& job) {
  std::string text = absl::StrCat(job.job_id(), ": ", job.phase());
  if (job.steps() > 0) {
    absl::StrAppend(&text, ", step ", job.step(), " of ", job.steps(), ", saved ",
                    job.saved_step());
  }
  if (!job.reason().empty()) absl::StrAppend(&text, " (", FirstLine(job.reason()), ")");
  return absl::StrCat(Harmless(text), "\n");
}

std::string EventText(const v1::Event& event, bool with_job) {
  const bool names_job = with_job && !event.job_id().empty();
  std::string lead = absl::StrCat(TimeText(event.unix_ms()), "  ",
                                  names_job ? Harmless(event.job_id()) : "", names_job ? "  " : "");
  std::string text;
  for (const std::string& line : HarmlessLines(WhatText(event), kMostReasonLines)) {
    absl::StrAppend(&text, lead, line, "\n");
    lead = "  | ";
  }
  return text;
}

bool StepThinner::Shows(const v1::Event& event) {
  if (!event.has_step()) return true;
  int64_t& shown = shown_unix_ms_[event.job_id()];
  const bool is_soon = event.unix_ms() < shown + kStepEveryMs && event.unix_ms() >= shown;
  if (is_soon && !event.step().stopping()) return false;
  shown = event.unix_ms();
  return true;
}

std::string LogText(const v1::LogsReply& piece, bool names_rank) {
  std::string lead;
  if (piece.rank() < 0) lead = absl::StrCat("[", Harmless(piece.file()), "] ");
  if (piece.rank() >= 0 && names_rank) lead = absl::StrCat("[", piece.rank(), "] ");
  std::string text;
  for (const std::string& line : HarmlessLines(piece.text())) {
    absl::StrAppend(&text, lead, line, "\n");
  }
  return text;
}

}  // namespace weft
