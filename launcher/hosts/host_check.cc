#include "launcher/hosts/host_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "plan/errors.h"
#include "plan/spec/subnet.h"
#include "process/folder_token.h"
#include "process/tls_bundle.h"

namespace weft {
namespace {

absl::Status Wrong(const std::string& host, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("host ", host, ": ", what));
}

// The certificate was issued for this run just now. By a clock that is off by more than a day it
// does not hold, and the coordinator's does not either: the agent would dial for ever.
absl::Status CheckClock(const std::string& host, const std::string& bundle, int64_t now_s) {
  if (bundle.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TlsBundle parsed, ParseBundle(bundle, "that was handed over"));
  ASSIGN_OR_RETURN(const CertificateFacts facts, DescribeCertificate(parsed.certificate));
  const absl::Status holds = CheckTime(facts, now_s);
  if (holds.ok()) return absl::OkStatus();
  return Wrong(host, absl::StrCat("its clock says ", absl::FormatTime(absl::FromUnixSeconds(now_s)),
                                  ", but ", holds.message(), ", and set this one right"));
}

absl::Status CheckFolder(const std::string& host, const HandOver& expected) {
  if (expected.run_folder.empty()) return absl::OkStatus();
  struct stat entry = {};
  if (stat(expected.run_folder.c_str(), &entry) != 0) {
    return Wrong(host, absl::StrCat("run folder ", expected.run_folder, ": ", std::strerror(errno),
                                    " there; job.output_dir has to be on a file system that all "
                                    "hosts mount at the same path"));
  }
  if (!HoldsToken(expected.run_folder, expected.token)) {
    return Wrong(host, absl::StrCat("run folder ", expected.run_folder,
                                    ": is another folder there than here; job.output_dir has to be "
                                    "on a file system that all hosts mount at the same path"));
  }
  // Checkpoints are written from every host, by the same user.
  const std::string why = WhyNotWritable(expected.run_folder);
  if (why.empty()) return absl::OkStatus();
  return Wrong(host,
               absl::StrCat("run folder ", expected.run_folder, ": cannot be written from there (",
                            why, "); look at its mount and its owner"));
}

absl::Status CheckNetwork(const std::string& host, const std::string& network,
                          const std::vector<std::string>& addresses) {
  if (network.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Subnet subnet, ParseSubnet(network));
  const bool reached =
      std::any_of(addresses.begin(), addresses.end(), [&](const std::string& text) {
        const absl::StatusOr<IpAddress> address = ParseIpAddress(text);
        return address.ok() && subnet.Contains(*address);
      });
  if (reached) return absl::OkStatus();
  return Wrong(host, absl::StrCat("cluster.network: ", network, ": it has no address there, but ",
                                  addresses.empty() ? "none" : absl::StrJoin(addresses, ", "),
                                  "; name the network that all hosts are in"));
}

}  // namespace

absl::Status CheckHost(const std::string& host, const HandOver& expected,
                       const std::string& version, const std::vector<std::string>& addresses,
                       int64_t now_s) {
  if (expected.version != version) {
    return Wrong(host, absl::StrCat("weft is ", version, " there but ", expected.version,
                                    " here; install both from one build"));
  }
  RETURN_IF_ERROR(CheckClock(host, expected.bundle, now_s));
  RETURN_IF_ERROR(CheckFolder(host, expected));
  return CheckNetwork(host, expected.network, addresses);
}

}  // namespace weft
