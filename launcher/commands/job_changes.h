// Verbs that mean a run of `weft run` ask this of a job of a weftd that serves jobs.
#pragma once
#include <string>

#include "launcher/service/service_address.h"

namespace weft {

int PrintJob(const ServiceWords& words, const std::string& job_id, bool json);
// `deadline_s`: after it a stop that saves becomes one at once; 0: it takes the time it takes.
int StopJob(const ServiceWords& words, const std::string& job_id, bool now, double deadline_s,
            bool json);

}  // namespace weft
