// The loss of a rank, and its slowness, as the JSON of a run's events and of `weft why-stopped`,
// whether a run's own weftd tells it (proto::RankLost) or one that serves jobs (v1::RankLost): both
// have the same fields.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft {

// Adds "event" and all that is known of it to `json`; keys of a hang only if it is one.
template <typename RankLost>
void AddLoss(const RankLost& lost, nlohmann::ordered_json& json) {
  json["event"] = "rank_lost";
  json["rank"] = lost.rank();
  json["host"] = lost.host();
  json["reason"] = lost.reason();
  if (!lost.did().empty()) json["did"] = lost.did();
  if (lost.phase().empty()) return;
  json["phase"] = lost.phase();
  json["step"] = lost.step();
  json["collective"] = lost.collective();
  json["why"] = lost.why();
  json["waiting"] = lost.waiting();
  json["stood_still_s"] = static_cast<double>(lost.age_ms()) / 1000;
  json["stacks"] = std::vector<std::string>(lost.stacks().begin(), lost.stacks().end());
}

// Adds "event", rank_slow or no_rank_slow, and all that is known of it to `json`.
template <typename SlowRank>
void AddSlow(const SlowRank& slow, nlohmann::ordered_json& json) {
  json["event"] = slow.rank() < 0 ? "no_rank_slow" : "rank_slow";
  if (slow.rank() >= 0) {
    json["rank"] = slow.rank();
    json["host"] = slow.host();
    json["share"] = slow.share();
    json["times"] = slow.times();
  }
  if (slow.since_step() > 0) json["since_step"] = slow.since_step();
}

}  // namespace weft
