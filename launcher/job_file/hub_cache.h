// Models by the names that they have on the Hugging Face Hub ("Qwen/Qwen3-0.6B"): a folder of
// transformers' own cache. weft downloads nothing; what is not there is refused with the command
// that fetches it.
//
//   <cache>/models--Qwen--Qwen3-0.6B/refs/main           the newest snapshot's name
//   <cache>/models--Qwen--Qwen3-0.6B/snapshots/<name>/   config.json, ...: links to blobs
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Says whether a path may as well be a model's name: an owner and a name, and no more.
bool IsHubName(absl::string_view path);

// $HF_HUB_CACHE, or hub/ of $HF_HOME, or of huggingface/ in the user's cache; empty: none is known.
std::string HubCache();

// Returns the folder of the model's snapshot. InvalidArgument: it is not in the cache; the message
// has the command. REQUIRES: IsHubName.
absl::StatusOr<std::string> HubSnapshot(const std::string& name);

// Returns `path` if anything is there, or if it is no name of a model; else HubSnapshot of it.
// `given`: as the person wrote it, where `path` is what it is as a path.
absl::StatusOr<std::string> LocalModel(const std::string& path, const std::string& given);

}  // namespace weft
