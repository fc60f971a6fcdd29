// All that has happened to a job of a weftd, as far as it is kept.
#pragma once
#include <functional>

#include "absl/status/status.h"
#include "launcher/service/control_client.h"

namespace weft {

// Calls `on_event` for each event up to now, steps left out (they are in metrics.jsonl). Where the
// oldest are no longer kept, stderr is told so, and what is kept follows.
absl::Status ReadHistory(ControlClient& client, const std::string& job_id,
                         const std::function<void(const v1::Event&)>& on_event);

}  // namespace weft
