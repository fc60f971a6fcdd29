#include "launcher/hosts/host_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/spec/subnet.h"

namespace weft {
namespace {

constexpr size_t kTokenDigits = 32;

// A name that nobody has asked for yet: a network file system remembers what it has not found.
std::string TokenFile(const std::string& run_folder, const std::string& token) {
  return absl::StrCat(run_folder, "/.hosts.", token.substr(0, kTokenDigits / 2));
}

absl::Status Wrong(const std::string& host, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("host ", host, ": ", what));
}

// Checkpoints are written from every host, by the same user.
absl::Status CheckWritable(const std::string& host, const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/.hosts.", host, ".", getpid());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return Wrong(host, absl::StrCat("run folder ", folder, ": cannot be written from there (",
                                    std::strerror(errno), "); look at its mount and its owner"));
  }
  close(file);
  unlink(path.c_str());
  return absl::OkStatus();
}

absl::Status CheckFolder(const std::string& host, const HandOver& expected) {
  if (expected.run_folder.empty()) return absl::OkStatus();
  struct stat entry = {};
  if (stat(expected.run_folder.c_str(), &entry) != 0) {
    return Wrong(host, absl::StrCat("run folder ", expected.run_folder, ": ", std::strerror(errno),
                                    " there; job.output_dir has to be on a file system that all "
                                    "hosts mount at the same path"));
  }
  std::ifstream file(TokenFile(expected.run_folder, expected.token));
  std::string token;
  file >> token;
  if (token.size() != kTokenDigits || token != expected.token) {
    return Wrong(host, absl::StrCat("run folder ", expected.run_folder,
                                    ": is another folder there than here; job.output_dir has to be "
                                    "on a file system that all hosts mount at the same path"));
  }
  return CheckWritable(host, expected.run_folder);
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

absl::StatusOr<std::string> WriteToken(const std::string& run_folder) {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenDigits) {
    absl::StrAppend(&token, absl::Hex(random(), absl::kZeroPad8));
  }
  const std::string path = TokenFile(run_folder, token);
  std::ofstream file(path);
  file << token << "\n" << std::flush;
  if (file) return token;
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
}

void RemoveToken(const std::string& run_folder, const std::string& token) {
  unlink(TokenFile(run_folder, token).c_str());
}

absl::Status CheckHost(const std::string& host, const HandOver& expected,
                       const std::string& version, const std::vector<std::string>& addresses) {
  if (expected.version != version) {
    return Wrong(host, absl::StrCat("weft is ", version, " there but ", expected.version,
                                    " here; install both from one build"));
  }
  RETURN_IF_ERROR(CheckFolder(host, expected));
  return CheckNetwork(host, expected.network, addresses);
}

}  // namespace weft
