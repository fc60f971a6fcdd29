#include "launcher/job_file/cluster_yaml.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/whole_file.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/keys/cluster_keys.h"

namespace weft {
namespace {

std::string FindProfile(const std::string& name, const std::vector<std::string>& folders,
                        const std::string& job_folder) {
  std::error_code error;
  if (absl::StrContains(name, '/') || absl::EndsWith(name, ".yaml")) {
    const std::string path = AbsolutePath(name, job_folder);
    return std::filesystem::is_regular_file(path, error) ? path : "";
  }
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / absl::StrCat(name, ".yaml");
    if (std::filesystem::is_regular_file(path, error)) return path.lexically_normal().string();
  }
  return "";
}

// Names of the profiles that a bare name could have meant.
std::vector<std::string> KnownProfiles(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Cluster ReadCluster(const Value& profile, const std::vector<std::string>& folders,
                    const std::string& job_folder, Issues* issues) {
  if (profile.is_map()) return ReadClusterMap(profile, issues);
  if (!profile.is_scalar()) {
    issues->Add(profile.place, "cluster.profile",
                absl::StrCat("found ", profile.Found(), "; expected a name or a path"));
    return {};
  }
  const std::string path = FindProfile(profile.scalar, folders, job_folder);
  if (path.empty()) {
    issues->Add(
        profile.place, "cluster.profile",
        absl::StrCat("found no readable profile ", profile.scalar, "; use ",
                     absl::StrJoin(KnownProfiles(folders), ", "), " or the path of a file"));
    return {};
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostSpecBytes);
  if (!text.ok()) {
    issues->Add(profile.place, "cluster.profile", text.status().message());
    return {};
  }
  const std::optional<Value> tree = ParseYaml(*text, path, profile.place.order, issues);
  if (!tree) return {};
  if (!tree->is_map()) {
    issues->Add(tree->place, "",
                absl::StrCat("found ", tree->Found(), "; a cluster profile is a map"));
    return {};
  }
  return ReadClusterMap(*tree, issues);
}

std::vector<std::string> ClusterFolders(const std::string& job_folder) {
  std::vector<std::string> folders;
  folders.push_back(AbsolutePath("../clusters", job_folder));
  folders.emplace_back(WEFT_CONFIGS_DIR "/clusters");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error)
    folders.push_back(AbsolutePath("../share/weft/clusters", self.parent_path().string()));
  return folders;
}

}  // namespace weft
