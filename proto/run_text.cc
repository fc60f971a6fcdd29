#include "proto/run_text.h"

#include <nlohmann/json.hpp>

#include "plan/errors.h"
#include "plan/keys/resolved_job.h"
#include "proto/job_text.h"
#include "proto/loss_json.h"
#include "proto/wire.h"

namespace weft {

std::string EventLine(const proto::JobEvent& event, const std::string& job_id, int64_t allocation) {
  nlohmann::ordered_json json = {{"unix_ms", event.unix_ms()},
                                 {"revision", event.revision()},
                                 {"generation", event.generation()}};
  if (!job_id.empty()) {
    json["job"] = job_id;
    json["allocation"] = allocation;
  }
  switch (event.event_case()) {
    case proto::JobEvent::kPhase:
      json["event"] = "phase";
      json["phase"] = event.phase().phase();
      json["reason"] = event.phase().reason();
      break;
    case proto::JobEvent::kCommitted:
      json["event"] = "committed";
      json["step"] = event.committed().step();
      json["folder"] = event.committed().folder();
      json["bytes"] = event.committed().bytes();
      break;
    case proto::JobEvent::kNotSaved:
      json["event"] = "not_saved";
      json["step"] = event.not_saved().step();
      json["rank"] = event.not_saved().rank();
      json["reason"] = event.not_saved().reason();
      json["saved_step"] = event.not_saved().saved_step();
      break;
    case proto::JobEvent::kLost:
      AddLoss(event.lost(), json);
      break;
    case proto::JobEvent::kRankSlow:
      AddSlow(event.rank_slow(), json);
      break;
    default:
      return "";
  }
  // A reason may hold bytes of a log that are not UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int64_t RevisionIn(const std::string& line, const std::string& job_id, int64_t allocation) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("job", nlohmann::json()) != job_id ||
      json.value("allocation", nlohmann::json()) != allocation) {
    return 0;
  }
  const auto revision = json.find("revision");
  return revision != json.end() && revision->is_number_integer() ? revision->get<int64_t>() : 0;
}

absl::StatusOr<std::string> ResolvedText(const proto::SubmitJobRequest& request,
                                         const proto::JobStatus& status,
                                         absl::string_view weft_version) {
  ASSIGN_OR_RETURN(const JobSpec job, ParseJobText(request.job()));
  ASSIGN_OR_RETURN(const Layout layout, FromProto(status.layout()));
  const RunRecord record{
      .run_id = request.run().id(),
      .generation = status.generation(),
      .weft_version = std::string(weft_version),
      .planned_bytes = status.planned_bytes(),
      .predicted_step_s = status.predicted_step_s(),
      .data = {request.data().begin(), request.data().end()},
      .accepted = {request.run().accepted().begin(), request.run().accepted().end()}};
  return ResolvedText(Resolve(job, layout), record);
}

}  // namespace weft
