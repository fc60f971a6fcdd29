#include "proto/run_text.h"

#include <nlohmann/json.hpp>

#include "proto/loss_json.h"

namespace weft {

std::string EventLine(const v1::Event& event, const std::string& job_id, int64_t allocation) {
  nlohmann::ordered_json json = {{"unix_ms", event.unix_ms()},
                                 {"revision", event.revision()},
                                 {"generation", event.generation()}};
  if (!job_id.empty()) {
    json["job"] = job_id;
    json["allocation"] = allocation;
  }
  switch (event.event_case()) {
    case v1::Event::kPhase:
      json["event"] = "phase";
      json["phase"] = event.phase().phase();
      json["reason"] = event.phase().reason();
      break;
    case v1::Event::kCommitted:
      json["event"] = "committed";
      json["step"] = event.committed().step();
      json["folder"] = event.committed().folder();
      json["bytes"] = event.committed().bytes();
      break;
    case v1::Event::kNotSaved:
      json["event"] = "not_saved";
      json["step"] = event.not_saved().step();
      json["rank"] = event.not_saved().rank();
      json["reason"] = event.not_saved().reason();
      json["saved_step"] = event.not_saved().saved_step();
      break;
    case v1::Event::kLost:
      AddLoss(event.lost(), json);
      break;
    case v1::Event::kRankSlow:
      AddSlow(event.rank_slow(), json);
      break;
    default:
      return "";
  }
  // A reason may hold bytes of a log that are not UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int64_t RevisionIn(const nlohmann::ordered_json& line, const std::string& job_id,
                   int64_t allocation) {
  const auto job = line.find("job"), its_allocation = line.find("allocation"),
             revision = line.find("revision");
  const bool is_of_it = job != line.end() && *job == job_id && its_allocation != line.end() &&
                        *its_allocation == allocation;
  const bool has_revision = revision != line.end() && revision->is_number_integer();
  return is_of_it && has_revision ? revision->get<int64_t>() : 0;
}

}  // namespace weft
