// Events become what is written into the folder of a run: lines of events.jsonl. `weft run` and
// weftd write the same (process/run_files.h). Pure.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "proto/weft/v1/control.pb.h"

namespace weft {

// One JSON object and the line's end; empty for what is not written there: a step (those are in
// metrics.jsonl), what hosts have found out about themselves.
// `job_id` and `allocation`: of a job that a weftd serves, whose revisions count anew with each
// allocation; none of `weft run`.
std::string EventLine(const v1::Event& event, const std::string& job_id = "",
                      int64_t allocation = 0);
// The event that a line of events.jsonl tells of; its job_id is empty where the line names none.
// Nothing if it tells of none that this version knows.
std::optional<v1::Event> EventOf(const nlohmann::ordered_json& line);
// Returns the revision that a line of events.jsonl names if it is of that allocation, else 0.
int64_t RevisionIn(const nlohmann::ordered_json& line, const std::string& job_id,
                   int64_t allocation);

}  // namespace weft
