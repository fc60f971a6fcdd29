#include "data/text_ends.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

bool IsId(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<int32_t>::max();
}

absl::Status AddEnds(const std::string& path, std::set<int32_t>* ends) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostSpecBytes));
  const absl::StatusOr<Json> json = ParseJson(text, {.most_bytes = kMostSpecBytes});
  if (!json.ok() || !json->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found no JSON object, expected one",
                     json.ok() ? "" : absl::StrCat(" (", json.status().message(), ")")));
  }
  const Json stated = json->value("eos_token_id", Json());
  const std::vector<Json> ids =
      stated.is_array() ? stated.get<std::vector<Json>>() : std::vector<Json>{stated};
  for (const Json& id : ids) {
    if (id.is_null()) continue;
    if (!IsId(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": eos_token_id: found ", id.is_structured() ? "a list or a map" : id.dump(),
          ", expected a token's id, a list of them or null"));
    }
    ends->insert(id.get<int32_t>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::set<int32_t>> ReadStatedEnds(const std::string& folder) {
  std::set<int32_t> ends;
  RETURN_IF_ERROR(AddEnds(folder + "/generation_config.json", &ends));
  RETURN_IF_ERROR(AddEnds(folder + "/config.json", &ends));
  return ends;
}

}  // namespace weft
