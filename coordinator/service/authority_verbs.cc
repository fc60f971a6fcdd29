#include "coordinator/service/authority_verbs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/authority.h"

namespace weft {
namespace {

struct VerbOptions {
  std::string folder;
  std::vector<std::string> names;
  std::string out;
  int64_t days = kBundleDays;
};

// The file is this user's alone from its first byte on, and takes the old one's place at once.
absl::Status WriteBundle(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return std::cout ? absl::OkStatus() : absl::UnavailableError("stdout takes no more");
  }
  const std::string temporary = absl::StrCat(path, ".", getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0 && std::rename(temporary.c_str(), path.c_str()) == 0;
  const int why = errno;
  close(file);
  if (written) return absl::OkStatus();
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(why, absl::StrCat(path, ": cannot be written"));
}

absl::Status Issue(BundleRole role, const VerbOptions& options) {
  ASSIGN_OR_RETURN(const Authority authority, Authority::Open(options.folder));
  ASSIGN_OR_RETURN(const std::string bundle,
                   authority.Issue(role, options.names, std::time(nullptr), options.days));
  return WriteBundle(options.out, bundle);
}

struct BundleHelp {
  const char* bundle;
  const char* name;
};
BundleHelp HelpOf(BundleRole role) {
  switch (role) {
    case BundleRole::kAgent:
      return {"a bundle for the agent of a host",
              "the host's name, as `weft agent --name` says it"};
    case BundleRole::kServer:
      return {"a bundle for weftd, which answers to the names, too",
              "names and addresses of its host"};
    case BundleRole::kViewer:
      return {"a bundle for somebody who may look", "the user's name"};
    case BundleRole::kSubmitter:
      return {"a bundle for somebody who may look, submit, and change jobs of their own",
              "the user's name"};
    case BundleRole::kOperator:
      return {"a bundle for somebody who may do all", "the user's name"};
  }
  return {"", ""};
}

void AddIssue(CLI::App& issue, BundleRole role, const std::shared_ptr<VerbOptions>& options,
              absl::Status* outcome) {
  const BundleHelp help = HelpOf(role);
  CLI::App* verb = issue.add_subcommand(std::string(RoleName(role)), help.bundle);
  CLI::Option* names = verb->add_option("name", options->names, help.name);
  if (role != BundleRole::kServer) names->required()->expected(1);
  verb->add_option("--authority", options->folder, "the authority's folder")->required();
  verb->add_option("--out", options->out, "file that takes the bundle, 0600; - is stdout")
      ->required();
  verb->add_option("--days", options->days, "how long it holds")->check(CLI::Range(1, 3650));
  verb->callback([role, options, outcome] { *outcome = Issue(role, *options); });
}

}  // namespace

void AddAuthorityVerbs(CLI::App& app, absl::Status* outcome) {
  const auto options = std::make_shared<VerbOptions>();
  CLI::App* authority = app.add_subcommand("authority", "make a certificate authority");
  authority->add_option("folder", options->folder, "folder to make, 0700")->required();
  authority->callback([options, outcome] {
    *outcome = Authority::Create(options->folder, std::time(nullptr)).status();
  });
  CLI::App* issue = app.add_subcommand("issue", "issue a bundle: key, certificate and authority");
  issue->require_subcommand(1);
  for (const BundleRole role : {BundleRole::kAgent, BundleRole::kServer, BundleRole::kViewer,
                                BundleRole::kSubmitter, BundleRole::kOperator}) {
    AddIssue(*issue, role, options, outcome);
  }
  CLI::App* revoke = app.add_subcommand("revoke", "let no certificate of that name in any more");
  revoke->add_option("name", options->names, "as it was issued")->required()->expected(1);
  revoke->add_option("--authority", options->folder, "the authority's folder")->required();
  revoke->callback([options, outcome] {
    const absl::StatusOr<Authority> opened = Authority::Open(options->folder);
    *outcome = opened.ok() ? opened->Revoke(options->names.front()).status() : opened.status();
  });
}

}  // namespace weft
