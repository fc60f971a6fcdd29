#include "launcher/machine/mpi_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr size_t kMostShown = 100;  // of a word that is refused

enum class Shape {
  kNumber,
  kEnvironment,  // "env": the daemon learns from its command line who it is
  kWords,        // names, lists, subnets: no slash at the beginning, no blank
  kUri,          // of mpirun: "4711.0;tcp://10.0.0.1,10.0.1.1:1024"
  kOurFolder,    // this host's own value comes in its place
  kOurCopy,      // the same
};

struct Setting {
  const char* name;
  Shape shape;
  bool needed;
};

// These are what mpirun 4.1 gives its daemons under MpirunArgv. `plm` and its settings are not
// here: this daemon starts no other one.
constexpr Setting kSettings[] = {
    {"ess", Shape::kEnvironment, true},
    {"ess_base_jobid", Shape::kNumber, true},
    {"ess_base_vpid", Shape::kNumber, true},
    {"ess_base_num_procs", Shape::kNumber, true},
    {"orte_node_regex", Shape::kWords, true},
    {"orte_hnp_uri", Shape::kUri, true},
    {"orte_tmpdir_base", Shape::kOurFolder, true},
    {"btl_vader_backing_directory", Shape::kOurFolder, true},
    {"btl_vader_single_copy_mechanism", Shape::kOurCopy, true},
    {"orte_leave_session_attached", Shape::kNumber, true},
    {"orte_do_not_resolve", Shape::kNumber, false},
    {"pml", Shape::kWords, false},
    {"btl", Shape::kWords, false},
    {"btl_tcp_if_include", Shape::kWords, false},
    {"btl_tcp_if_exclude", Shape::kWords, false},
    {"oob_tcp_if_include", Shape::kWords, false},
    {"oob_tcp_if_exclude", Shape::kWords, false},
    {"mpi_yield_when_idle", Shape::kNumber, false},
    {"odls_base_sigkill_timeout", Shape::kNumber, false},
    {"rmaps_base_mapping_policy", Shape::kWords, false},
    {"rmaps_base_oversubscribe", Shape::kNumber, false},
    {"hwloc_base_binding_policy", Shape::kWords, false},
    {"pmix", Shape::kWords, false},
};

bool HasOnly(absl::string_view text, absl::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char each) {
    return absl::ascii_isalnum(static_cast<unsigned char>(each)) || absl::StrContains(others, each);
  });
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= 20 && std::all_of(text.begin(), text.end(), [](char each) {
    return absl::ascii_isdigit(static_cast<unsigned char>(each));
  });
}

// "tcp://10.0.0.1,10.0.1.1:1024" or "tcp6://[fd00::1]:1024".
std::vector<std::string> AddressesIn(absl::string_view contact) {
  if (!absl::ConsumePrefix(&contact, "tcp://") && !absl::ConsumePrefix(&contact, "tcp6://"))
    return {};
  const size_t colon = contact.rfind(':');
  if (colon == absl::string_view::npos || !IsNumber(contact.substr(colon + 1))) return {};
  contact = contact.substr(0, colon);
  if (absl::ConsumePrefix(&contact, "[") && !absl::ConsumeSuffix(&contact, "]")) return {};
  if (!HasOnly(contact, ".,:")) return {};
  return absl::StrSplit(contact, ',', absl::SkipEmpty());
}

// Empty: the daemon may call there.
std::string RefusalOfUri(const std::string& uri, const std::vector<std::string>& known) {
  const std::vector<std::string> parts = absl::StrSplit(uri, ';');
  absl::string_view job = parts.front();
  if (parts.size() < 2 || !absl::ConsumeSuffix(&job, ".0") || !IsNumber(job)) {
    return "is not mpirun's address";
  }
  for (size_t part = 1; part < parts.size(); ++part) {
    const std::vector<std::string> addresses = AddressesIn(parts[part]);
    if (addresses.empty()) return "is not mpirun's address";
    for (const std::string& address : addresses) {
      if (!known.empty() && std::find(known.begin(), known.end(), address) == known.end()) {
        return absl::StrCat("names ", address, ", which is not an address of the first host");
      }
    }
  }
  return "";
}

std::string RefusalOf(const Setting& setting, const std::string& value,
                      const std::vector<std::string>& first_addresses) {
  switch (setting.shape) {
    case Shape::kNumber:
      return IsNumber(value) ? "" : "is not a number";
    case Shape::kEnvironment:
      return value == "env" ? "" : "has to be env";
    case Shape::kWords:
      return !value.empty() && value[0] != '/' && HasOnly(value, "_-.,:^@/[]()") ? ""
                                                                                 : "is refused";
    case Shape::kUri:
      return RefusalOfUri(value, first_addresses);
    case Shape::kOurFolder:
    case Shape::kOurCopy:
      break;
  }
  return "";
}

std::string ValueOf(const Setting& setting, const std::string& value, const GroupOptions& options) {
  if (setting.shape == Shape::kOurFolder) return options.temporary_folder;
  if (setting.shape == Shape::kOurCopy) return SingleCopyWord(options);
  return value;
}

const Setting* FindSetting(const std::string& name) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return &setting;
  }
  return nullptr;
}

absl::Status Refused(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("mpirun's daemon is not started: ", what,
                   "; the hosts need the same version of weft and of Open MPI (4.1)"));
}

}  // namespace

absl::StatusOr<DaemonCommand> DaemonCommandOf(const std::string& program,
                                              const std::vector<std::string>& args,
                                              const std::vector<std::string>& first_addresses,
                                              const GroupOptions& options) {
  DaemonCommand command{.argv = {program}, .left_out = {}};
  std::set<std::string> given;
  for (size_t i = 0; i < args.size(); i += 3) {
    const bool is_setting = (args[i] == "-mca" || args[i] == "--mca") && i + 2 < args.size();
    if (!is_setting) return Refused(absl::StrCat("unknown option ", args[i].substr(0, kMostShown)));
    const std::string& name = args[i + 1];
    const Setting* setting = FindSetting(name);
    if (setting == nullptr) {
      command.left_out.push_back(name.substr(0, kMostShown));
      continue;
    }
    const std::string refusal = RefusalOf(*setting, args[i + 2], first_addresses);
    if (!refusal.empty()) {
      return Refused(absl::StrCat(name, " ", args[i + 2].substr(0, kMostShown), " ", refusal));
    }
    if (!given.insert(name).second) return Refused(absl::StrCat(name, " is given twice"));
    command.argv.insert(command.argv.end(),
                        {"-mca", name, ValueOf(*setting, args[i + 2], options)});
  }
  for (const Setting& setting : kSettings) {
    if (setting.needed && given.count(setting.name) == 0) {
      return Refused(absl::StrCat(setting.name, " is missing"));
    }
  }
  return command;
}

absl::StatusOr<std::string> FindDaemon() {
  const std::string mpirun = FindInPath("mpirun");
  if (mpirun.empty()) {
    return absl::NotFoundError("mpirun is not found in PATH; install openmpi-bin");
  }
  const std::string daemon = (std::filesystem::path(mpirun).parent_path() / "orted").string();
  if (access(daemon.c_str(), X_OK) == 0) return daemon;
  return absl::NotFoundError(absl::StrCat("cannot execute ", daemon, "; install openmpi-bin"));
}

}  // namespace weft
