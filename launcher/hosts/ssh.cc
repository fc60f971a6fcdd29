#include "launcher/hosts/ssh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/ask_program.h"

namespace weft {
namespace {

constexpr int kSshItself = 255;      // ssh's exit code for its own failures
constexpr int kNotExecutable = 126;  // a shell's
constexpr int kNotFound = 127;

struct Complaint {
  absl::string_view said;  // by ssh
  absl::StatusCode code;
  absl::string_view meaning;  // `$H`: the host
};

// The first that was said counts: ssh says the cause before the consequence.
constexpr Complaint kComplaints[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", absl::StatusCode::kPermissionDenied,
     "its host key is another one than known_hosts says: make sure that it is the host you mean, "
     "then `ssh-keygen -R $H` and connect once by `ssh $H`"},
    {"Host key verification failed", absl::StatusCode::kPermissionDenied,
     "its host key is not known here; connect once by `ssh $H` and look at the key, or add it to "
     "known_hosts"},
    {"Permission denied (", absl::StatusCode::kPermissionDenied,
     "ssh is not let in; add your public key to ~/.ssh/authorized_keys there, or name the key by "
     "cluster.ssh_options: -i FILE (ssh is not allowed to ask for passwords)"},
    {"Could not resolve hostname", absl::StatusCode::kInvalidArgument,
     "there is no host of that name; look at its spelling, or give it an address in ssh_config"},
    {"Connection refused", absl::StatusCode::kUnavailable,
     "no sshd listens there; start it, or name its port by cluster.ssh_options: -p PORT"},
    {"Connection timed out", absl::StatusCode::kUnavailable,
     "it does not answer; is it up, and is its network reached from here?"},
    {"No route to host", absl::StatusCode::kUnavailable,
     "it does not answer; is it up, and is its network reached from here?"},
    {"Network is unreachable", absl::StatusCode::kUnavailable,
     "it does not answer; is it up, and is its network reached from here?"},
    {"Bad configuration option", absl::StatusCode::kInvalidArgument,
     "ssh does not know an option; look at cluster.ssh_options and ssh_config"},
    {"unknown option", absl::StatusCode::kInvalidArgument,
     "ssh does not know an option; look at cluster.ssh_options"},
    {"Too many authentication failures", absl::StatusCode::kPermissionDenied,
     "ssh offers more keys than it takes; name the one by cluster.ssh_options: -i FILE -o "
     "IdentitiesOnly=yes"},
};

}  // namespace

std::string ShellWord(absl::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("_-./:=,@%+").find(c) != absl::string_view::npos;
  });
  if (plain) return std::string(word);
  return absl::StrCat("'", absl::StrJoin(absl::StrSplit(word, '\''), "'\\''"), "'");
}

std::vector<std::string> SshArgv(const ListedHost& host, absl::string_view options,
                                 const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"ssh", "-T", "-o", "BatchMode=yes"};
  for (const absl::string_view word :
       absl::StrSplit(options, absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
    argv.emplace_back(word);
  }
  // ssh takes the first value of an option, so these are defaults for what stands before them. A
  // host that is gone is noticed after 45 s, when its lease has long run out.
  for (const char* option : {"ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=3",
                             "ControlPath=none"}) {
    argv.insert(argv.end(), {"-o", option});
  }
  argv.push_back(host.user.empty() ? host.name : absl::StrCat(host.user, "@", host.name));
  std::vector<std::string> words = {"exec"};
  for (const std::string& word : command) words.push_back(ShellWord(word));
  argv.insert(argv.end(), {"--", absl::StrJoin(words, " ")});
  return argv;
}

absl::Status CommandFailure(const std::string& host, const std::string& program, int exit_code,
                            absl::string_view words) {
  if (exit_code == kNotFound || absl::StrContains(words, absl::StrCat(program, ": not found")) ||
      absl::StrContains(words, absl::StrCat(program, ": No such file"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", host, ": ", program, " is not there; install weft at the same path on ",
        "each host, or name its folder by cluster.remote_path"));
  }
  if (exit_code == kNotExecutable) {
    return absl::PermissionDeniedError(absl::StrCat(
        "host ", host, ": ", program, " cannot be executed there; look at its mode and its owner"));
  }
  const std::string line = LastLine(words);
  absl::string_view said = absl::StripPrefix(line, "weft: ");
  said = absl::StripPrefix(said, absl::StrCat("host ", host, ": "));
  const std::string message = absl::StrCat(
      "host ", host, ": ", said.empty() ? absl::StrCat("its agent ended with ", exit_code) : said);
  if (exit_code == 2) return absl::InvalidArgumentError(message);
  return absl::UnavailableError(message);
}

absl::Status SshFailure(const std::string& host, const std::string& program, int exit_code,
                        absl::string_view words) {
  if (exit_code == 0) return absl::OkStatus();
  if (exit_code != kSshItself) return CommandFailure(host, program, exit_code, words);
  const Complaint* first = nullptr;
  size_t at = absl::string_view::npos;
  for (const Complaint& complaint : kComplaints) {
    const size_t found = words.find(complaint.said);
    if (found < at) {
      at = found;
      first = &complaint;
    }
  }
  if (first != nullptr) {
    const std::string meaning = absl::StrJoin(absl::StrSplit(first->meaning, "$H"), host);
    return absl::Status(first->code, absl::StrCat("host ", host, ": ", meaning));
  }
  const std::string line = LastLine(words);
  return absl::UnavailableError(
      absl::StrCat("host ", host, ": ssh ended: ", line.empty() ? "it said nothing" : line));
}

AgentStarter SshStarter(std::string options) {
  return {.name = "ssh",
          .argv =
              [options = std::move(options)](const ListedHost& host,
                                             const std::vector<std::string>& command) {
                return SshArgv(host, options, command);
              },
          .failure = SshFailure};
}

}  // namespace weft
