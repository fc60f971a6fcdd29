// Jobs, their events and their logs as people read them. All that comes from outside is made
// harmless here. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// "job-17": what a job's id looks like; anything else is a run folder or a job file.
bool IsJobId(absl::string_view text);
// Over: no more will happen to it.
bool IsOver(const std::string& phase);

std::string JobsTable(const std::vector<v1::Job>& jobs, int64_t now_unix_ms, int width);
// Several lines: where the job stands.
std::string JobSheet(const v1::Job& job, int64_t now_unix_ms);
// One line: "job-17: RUNNING, step 120 of 300, saved 100".
std::string JobLine(const v1::Job& job);

// "42s", "12m", "3h07m", "5d02h"
std::string AgeText(int64_t ms);

// An event in a line, and more for the last words of a rank. `with_job`: the job's id is in it.
std::string EventText(const v1::Event& event, bool with_job);

// StepThinner leaves out steps that come faster than people read. Not thread-safe.
class StepThinner {
 public:
  // False: the event is a step within a second of the last one that was shown of its job.
  bool Shows(const v1::Event& event);

 private:
  std::map<std::string, int64_t> shown_unix_ms_;  // by job
};

// The lines of a piece of a log, each with whose it is: "[3] ", "[agent-n1.log] ". `names_rank`:
// false where all pieces are of one rank.
std::string LogText(const v1::LogsReply& piece, bool names_rank);

}  // namespace weft
