#include "proto/job_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/keys/job_tree.h"
#include "plan/keys/value.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kVersionKey[] = "format_version";
constexpr int64_t kVersion = 1;

Value ScalarFromJson(const Json& json) {
  if (json.is_string()) return Value::Text(json.get<std::string>());
  if (json.is_boolean()) return Value::Flag(json.get<bool>());
  if (json.is_number_float()) return Value::Number(json.get<double>());
  if (json.is_number_unsigned()) return Value::Scalar(absl::StrCat(json.get<uint64_t>()));
  if (json.is_number_integer()) return Value::Whole(json.get<int64_t>());
  return {};
}

// Every value stands in "job", for messages.
Value FromJson(const Json& json) {
  Value value;
  if (json.is_object()) {
    value = Value::Map();
    for (const auto& [name, node] : json.items()) value.entries.push_back({name, FromJson(node)});
  } else if (json.is_array()) {
    value = Value::List({});
    for (const Json& item : json) value.items.push_back(FromJson(item));
  } else {
    value = ScalarFromJson(json);
  }
  value.place.source = "job";
  return value;
}

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("job: ", why, "; the sender is not this version of weft"));
}

}  // namespace

std::string JobText(const JobSpec& job) {
  Json json = {{kVersionKey, kVersion}};
  json.update(JsonOf(JobTree(job)));
  // A path may hold bytes that are no UTF-8: Validate refuses them where a job is read.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no bare words: they become texts.
nlohmann::ordered_json JsonOf(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return nullptr;
    case Value::Kind::kScalar: {
      if (value.quoted) return value.scalar;
      const Json json = ParseOrderedJson(value.scalar).value_or(nullptr);
      return json.is_number() || json.is_boolean() ? json : Json(value.scalar);
    }
    case Value::Kind::kList: {
      Json json = Json::array();
      for (const Value& item : value.items) json.push_back(JsonOf(item));
      return json;
    }
    case Value::Kind::kMap: {
      Json json = Json::object();
      for (const auto& [name, node] : value.entries) json[name] = JsonOf(node);
      return json;
    }
  }
  return nullptr;
}

absl::StatusOr<JobSpec> ParseJobText(const std::string& text) {
  absl::StatusOr<Json> json = ParseOrderedJson(text, {.most_bytes = kMostJobTextBytes});
  if (!json.ok() && !text.empty()) return Refused(json.status().message());
  if (!json.ok() || !json->is_object()) return Refused("is missing, or no JSON object");
  const auto version = json->find(kVersionKey);
  if (version == json->end() || *version != kVersion) {
    return Refused(absl::StrCat(kVersionKey, " is not ", kVersion));
  }
  json->erase(version);
  Issues issues;
  JobSpec job = ReadJobTree(FromJson(*json), &issues);
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  return job;
}

}  // namespace weft
