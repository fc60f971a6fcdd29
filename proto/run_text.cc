#include "proto/run_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proto/loss_json.h"

namespace weft {
namespace {

// A LineFields reads fields of a line that anybody may have written: one that is missing, or is
// something else, counts as empty.
class LineFields {
 public:
  explicit LineFields(const nlohmann::ordered_json& line) : line_(line) {}

  std::string Text(const char* key) const {
    const auto found = line_.find(key);
    return found != line_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  int64_t Whole(const char* key, int64_t otherwise = 0) const {
    const auto found = line_.find(key);
    return found != line_.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
  }
  double Number(const char* key) const {
    const auto found = line_.find(key);
    return found != line_.end() && found->is_number() ? found->get<double>() : 0;
  }
  int Rank() const { return static_cast<int>(std::clamp<int64_t>(Whole("rank", -1), -1, 1 << 30)); }

 private:
  const nlohmann::ordered_json& line_;
};

void TakeLoss(const LineFields& line, v1::RankLost* lost) {
  lost->set_rank(line.Rank());
  lost->set_host(line.Text("host"));
  lost->set_reason(line.Text("reason"));
  lost->set_did(line.Text("did"));
  lost->set_phase(line.Text("phase"));
  lost->set_step(line.Whole("step"));
  lost->set_collective(line.Text("collective"));
  lost->set_why(line.Text("why"));
  lost->set_waiting(line.Text("waiting"));
  constexpr double kLongestS = 1e9;
  lost->set_age_ms(
      static_cast<int64_t>(1000 * std::clamp(line.Number("stood_still_s"), 0.0, kLongestS)));
}

// False: it is none that is written into events.jsonl.
bool TakeEvent(const LineFields& line, v1::Event* event) {
  const std::string name = line.Text("event");
  if (name == "phase") {
    event->mutable_phase()->set_phase(line.Text("phase"));
    event->mutable_phase()->set_reason(line.Text("reason"));
  } else if (name == "committed") {
    event->mutable_committed()->set_step(line.Whole("step"));
    event->mutable_committed()->set_folder(line.Text("folder"));
    event->mutable_committed()->set_bytes(line.Whole("bytes"));
  } else if (name == "not_saved") {
    event->mutable_not_saved()->set_step(line.Whole("step"));
    event->mutable_not_saved()->set_rank(line.Rank());
    event->mutable_not_saved()->set_reason(line.Text("reason"));
    event->mutable_not_saved()->set_saved_step(line.Whole("saved_step"));
  } else if (name == "rank_lost") {
    TakeLoss(line, event->mutable_lost());
  } else if (name == "rank_slow" || name == "no_rank_slow") {
    v1::SlowRank* slow = event->mutable_rank_slow();
    slow->set_rank(name == "rank_slow" ? line.Rank() : -1);
    slow->set_host(line.Text("host"));
    slow->set_share(line.Number("share"));
    slow->set_times(line.Number("times"));
    slow->set_since_step(line.Whole("since_step"));
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<v1::Event> EventOf(const nlohmann::ordered_json& line) {
  if (!line.is_object()) return std::nullopt;
  const LineFields fields(line);
  v1::Event event;
  if (!TakeEvent(fields, &event)) return std::nullopt;
  event.set_revision(fields.Whole("revision"));
  event.set_generation(fields.Whole("generation"));
  event.set_unix_ms(fields.Whole("unix_ms"));
  event.set_job_id(fields.Text("job"));
  const auto stacks = line.find("stacks");
  if (event.has_lost() && stacks != line.end() && stacks->is_array()) {
    for (const auto& each : *stacks) {
      if (each.is_string()) event.mutable_lost()->add_stacks(each.get<std::string>());
    }
  }
  return event;
}

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
