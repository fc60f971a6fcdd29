#include "launcher/job_file/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "data/whole_file.h"

namespace weft {
namespace {

constexpr int64_t kMostRefBytes = 256;
constexpr size_t kMostNameBytes = 200;

// As the Hub allows: letters, digits, -, _ and ., and no . at the beginning.
bool IsPartOfName(absl::string_view part) {
  return !part.empty() && part[0] != '.' && part[0] != '-' &&
         std::all_of(part.begin(), part.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                  c == '.';
         });
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status NotThere(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": there is no such folder, and ", why,
                                                 "; fetch the model: hf download ", name));
}

}  // namespace

bool IsHubName(absl::string_view path) {
  const size_t slash = path.find('/');
  return slash != absl::string_view::npos && path.size() <= kMostNameBytes &&
         IsPartOfName(path.substr(0, slash)) && IsPartOfName(path.substr(slash + 1));
}

std::string HubCache() {
  for (const char* const name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = Variable(name); !folder.empty()) return folder;
  }
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = Variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  const std::string home = Variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

absl::StatusOr<std::string> HubSnapshot(const std::string& name) {
  const std::string cache = HubCache();
  if (cache.empty()) return NotThere(name, "neither HF_HOME nor HOME says where models are kept");
  const std::string model =
      absl::StrCat(cache, "/models--", absl::StrReplaceAll(name, {{"/", "--"}}));
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) {
    return NotThere(name, absl::StrCat("no model of that name in ", cache));
  }
  const absl::StatusOr<std::string> ref = ReadWholeFile(model + "/refs/main", kMostRefBytes);
  const std::string snapshot =
      ref.ok() ? std::string(absl::StripAsciiWhitespace(*ref)) : std::string();
  const std::string folder = absl::StrCat(model, "/snapshots/", snapshot);
  if (!IsPartOfName(snapshot) || !std::filesystem::exists(folder + "/config.json", error)) {
    return NotThere(name, absl::StrCat("its copy in ", cache, " is not whole"));
  }
  return folder;
}

absl::StatusOr<std::string> LocalModel(const std::string& path, const std::string& given) {
  std::error_code error;
  if (std::filesystem::exists(path, error) || !IsHubName(given)) return path;
  return HubSnapshot(given);
}

}  // namespace weft
