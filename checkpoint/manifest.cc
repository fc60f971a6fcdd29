#include "checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/model_json.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kHashLineStart = "  \"manifest_xxh3\": \"";
constexpr absl::string_view kHashLineEnd = "\"\n}\n";
constexpr size_t kHexDigits = 32;
constexpr int kWithoutModel = 2;
constexpr int kWithoutRun = 3;

absl::Status Damaged(absl::string_view found, absl::string_view expected) {
  return absl::DataLossError(
      absl::StrCat(kManifestFile, ": found ", found, ", expected ", expected));
}

std::string HashLine(absl::string_view body) {
  return absl::StrCat(kHashLineStart, HashBytes(body), kHashLineEnd);
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsHash(const std::string& text) {
  return text.size() == kHexDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
         });
}

// A name inside the folder: no way out of it.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && !absl::StrContains(name, '/') &&
         !absl::StrContains(name, '\0');
}

absl::Status ReadWholeNumber(const Json& object, const char* key, int64_t* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Damaged(absl::StrCat("no whole number at '", key, "'"), "one >= 0");
  }
  *value = found->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadString(const Json& object, const char* key, std::string* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return Damaged(absl::StrCat("no string at '", key, "'"), "one");
  }
  *value = found->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadProgress(const Json& object, RunProgress* progress) {
  RETURN_IF_ERROR(ReadWholeNumber(object, "skipped_steps", &progress->skipped_steps));
  RETURN_IF_ERROR(ReadWholeNumber(object, "skipped_in_a_row", &progress->skipped_in_a_row));
  RETURN_IF_ERROR(
      ReadWholeNumber(object, "loss_scale_good_steps", &progress->loss_scale_good_steps));
  RETURN_IF_ERROR(
      ReadWholeNumber(object, "loss_scale_hysteresis", &progress->loss_scale_hysteresis));
  const auto found = object.find("loss_scale");
  if (found == object.end() || !found->is_number() || found->get<double>() < 0) {
    return Damaged("no number at 'loss_scale'", "one >= 0");
  }
  progress->loss_scale = found->get<double>();
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& object, std::optional<ModelShape>* model) {
  const auto found = object.find("model");
  if (found == object.end()) return Damaged("no object at 'model'", "the model's shape");
  const absl::StatusOr<ModelShape> read = ParseModelJson(found->dump());
  if (!read.ok()) {
    return absl::DataLossError(absl::StrCat(kManifestFile, ": model: ", read.status().message()));
  }
  *model = *read;
  return absl::OkStatus();
}

absl::Status ReadFacts(const Json& object, std::map<std::string, std::string>* facts) {
  const auto found = object.find("facts");
  if (found == object.end() || !found->is_object()) {
    return Damaged("no object at 'facts'", "strings by name");
  }
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) return Damaged(absl::StrCat("a fact '", key, "'"), "a string");
    (*facts)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadShards(const Json& object, std::vector<ShardRecord>* shards) {
  const auto found = object.find("shards");
  if (found == object.end() || !found->is_array() || found->empty()) {
    return Damaged("no shards", "at least one");
  }
  for (const Json& entry : *found) {
    if (!entry.is_object()) return Damaged("a shard that is not an object", "file, bytes, xxh3");
    ShardRecord shard;
    RETURN_IF_ERROR(ReadString(entry, "file", &shard.file));
    RETURN_IF_ERROR(ReadWholeNumber(entry, "bytes", &shard.bytes));
    RETURN_IF_ERROR(ReadString(entry, "xxh3", &shard.xxh3));
    if (!IsPlainName(shard.file)) return Damaged("a shard file that is a path", "a plain name");
    if (!IsHash(shard.xxh3)) {
      return Damaged(absl::StrCat(shard.file, " with xxh3 of another form"), "32 hex digits");
    }
    shards->push_back(std::move(shard));
  }
  return absl::OkStatus();
}

// Returns the text before the checksum line once it agrees with it.
absl::StatusOr<absl::string_view> CheckedBody(absl::string_view text) {
  const size_t tail = kHashLineStart.size() + kHexDigits + kHashLineEnd.size();
  if (text.size() < tail) {
    return Damaged(absl::StrCat(text.size(), " bytes"), "a text that ends with manifest_xxh3");
  }
  const absl::string_view body = text.substr(0, text.size() - tail);
  const absl::string_view line = text.substr(body.size());
  if (!absl::StartsWith(line, kHashLineStart) || !absl::EndsWith(line, kHashLineEnd)) {
    return Damaged(absl::StrCat(text.size(), " bytes that do not end with a manifest_xxh3 line"),
                   "that line last");
  }
  const std::string expected = HashLine(body);
  if (line != expected) {
    return Damaged(absl::StrCat("bytes that hash to ", HashBytes(body)),
                   absl::StrCat("manifest_xxh3 ", line.substr(kHashLineStart.size(), kHexDigits)));
  }
  return body;
}

absl::StatusOr<Json> ParseWhole(absl::string_view text) {
  absl::StatusOr<Json> json = ParseJson(text, {.most_bytes = kMostManifestBytes});
  if (!json.ok()) return Damaged(json.status().message(), "an object");
  if (!json->is_object()) return Damaged("JSON that is no object", "an object");
  return json;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  const int without_run = manifest.model ? kWithoutRun : kWithoutModel;
  const int version = manifest.run_id.empty() ? without_run : kManifestFormatVersion;
  std::string text = absl::StrCat("{\n  \"format_version\": ", version, ",\n");
  if (version > kWithoutRun) {
    absl::StrAppend(&text, "  \"run_id\": ", Quoted(manifest.run_id), ",\n");
    absl::StrAppend(&text, "  \"run_folder\": ", Quoted(manifest.run_folder), ",\n");
  }
  absl::StrAppend(&text, "  \"step\": ", manifest.step, ",\n");
  absl::StrAppend(&text, "  \"generation\": ", manifest.generation, ",\n");
  absl::StrAppend(&text, "  \"next_sample\": ", manifest.next_sample, ",\n");
  absl::StrAppend(&text, "  \"skipped_steps\": ", manifest.progress.skipped_steps, ",\n");
  absl::StrAppend(&text, "  \"skipped_in_a_row\": ", manifest.progress.skipped_in_a_row, ",\n");
  absl::StrAppend(&text, "  \"loss_scale\": ", Json(manifest.progress.loss_scale).dump(), ",\n");
  absl::StrAppend(&text, "  \"loss_scale_good_steps\": ", manifest.progress.loss_scale_good_steps,
                  ",\n");
  absl::StrAppend(&text, "  \"loss_scale_hysteresis\": ", manifest.progress.loss_scale_hysteresis,
                  ",\n");
  absl::StrAppend(&text, "  \"weft_version\": ", Quoted(manifest.weft_version), ",\n");
  absl::StrAppend(&text, "  \"layout\": ", Quoted(manifest.layout), ",\n");
  if (manifest.model) absl::StrAppend(&text, "  \"model\": ", ModelJson(*manifest.model), ",\n");
  text += "  \"facts\": {";
  const char* separator = "\n";
  for (const auto& [key, value] : manifest.facts) {
    absl::StrAppend(&text, separator, "    ", Quoted(key), ": ", Quoted(value));
    separator = ",\n";
  }
  text += "\n  },\n  \"shards\": [";
  separator = "\n";
  for (const ShardRecord& shard : manifest.shards) {
    absl::StrAppend(&text, separator, "    {\"file\": ", Quoted(shard.file),
                    ", \"bytes\": ", shard.bytes, ", \"xxh3\": ", Quoted(shard.xxh3), "}");
    separator = ",\n";
  }
  text += "\n  ],\n";
  return absl::StrCat(text, HashLine(text));
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  RETURN_IF_ERROR(CheckedBody(text).status());
  ASSIGN_OR_RETURN(const Json json, ParseWhole(text));
  Manifest manifest;
  int64_t version = 0;
  RETURN_IF_ERROR(ReadWholeNumber(json, "format_version", &version));
  if (version < kWithoutModel || version > kManifestFormatVersion) {
    return Damaged(absl::StrCat("format_version ", version),
                   absl::StrCat(kWithoutModel, " to ", kManifestFormatVersion,
                                "; use the weft that wrote it"));
  }
  RETURN_IF_ERROR(ReadWholeNumber(json, "step", &manifest.step));
  RETURN_IF_ERROR(ReadWholeNumber(json, "generation", &manifest.generation));
  RETURN_IF_ERROR(ReadWholeNumber(json, "next_sample", &manifest.next_sample));
  RETURN_IF_ERROR(ReadProgress(json, &manifest.progress));
  RETURN_IF_ERROR(ReadString(json, "weft_version", &manifest.weft_version));
  RETURN_IF_ERROR(ReadString(json, "layout", &manifest.layout));
  if (version > kWithoutRun) {
    RETURN_IF_ERROR(ReadString(json, "run_id", &manifest.run_id));
    RETURN_IF_ERROR(ReadString(json, "run_folder", &manifest.run_folder));
    if (manifest.run_id.empty()) return Damaged("an empty 'run_id'", "the run's");
  }
  if (version == kWithoutRun || json.contains("model")) {
    RETURN_IF_ERROR(ReadModel(json, &manifest.model));
  }
  RETURN_IF_ERROR(ReadFacts(json, &manifest.facts));
  RETURN_IF_ERROR(ReadShards(json, &manifest.shards));
  return manifest;
}

}  // namespace weft
