// A job as it is handed to a weftd, by weft submit to one that serves jobs, by weft run to its own.
// Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/run/going_on.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

v1::Submission SubmissionOf(const JobSpec& job, const std::string& run_folder, const Layout& layout,
                            const Continuation& going_on, const std::vector<std::string>& data);

}  // namespace weft
