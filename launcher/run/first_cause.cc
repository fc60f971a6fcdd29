#include "launcher/run/first_cause.h"

#include <sys/wait.h>

#include <cstring>
#include <optional>
#include <regex>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

std::optional<std::smatch> Match(const std::string& text, const char* pattern) {
  std::smatch match;
  if (!std::regex_search(text, match, std::regex(pattern))) return std::nullopt;
  return match;
}

std::string Where(int rank, const std::string& host) {
  return absl::StrCat("rank ", rank, " on ", host);
}

void SetSignal(int signal, FirstCause* cause) {
  cause->signal = signal;
  cause->message = absl::StrCat(Where(cause->rank, cause->host), ": killed by signal ", signal,
                                " (", strsignal(signal), ")");
  if (signal == 9) cause->hint = "if nobody sent it, memory ran out";
}

void SetExit(int code, FirstCause* cause) {
  cause->exit_code = code;
  cause->message = absl::StrCat(Where(cause->rank, cause->host), ": exited with code ", code);
  if (code == 75) cause->hint = "it lost its coordinator";
}

// mpirun's own words when none of its known sentences is there.
std::string FirstWords(absl::string_view output) {
  for (absl::string_view line : absl::StrSplit(output, '\n', absl::SkipWhitespace())) {
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (!words.empty() && words[0] != '-') return absl::StrCat(words);
  }
  return "it said nothing";
}

}  // namespace

FirstCause ReadFirstCause(absl::string_view output, int wait_status, absl::string_view host) {
  const std::string text(output.substr(output.size() > 65536 ? output.size() - 65536 : 0));
  FirstCause cause;
  cause.host = absl::StrCat(host);
  const auto at = [&](const std::smatch& match, size_t rank, size_t node) {
    cause.rank = std::stoi(match[rank]);
    if (node > 0) cause.host = match[node];
  };
  if (const auto match = Match(text, R"(process rank (\d{1,7}) with PID \d+ on\s+node (\S+) )"
                                     R"(exited on\s+signal (\d{1,3}))")) {
    at(*match, 1, 2);
    SetSignal(std::stoi((*match)[3]), &cause);
  } else if (const auto name = Match(text, R"(Process name: \[\[\d+,\d+\],(\d{1,7})\]\s+)"
                                           R"(Exit code:\s+(\d{1,3}))")) {
    at(*name, 1, 0);
    SetExit(std::stoi((*name)[2]), &cause);
  } else if (const auto aborted = Match(text, R"(MPI_ABORT was invoked on rank (\d{1,7}))")) {
    at(*aborted, 1, 0);
    SetExit(WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1, &cause);
  } else if (const auto improper = Match(text, R"(due to process rank (\d{1,7}) with PID \d+ on\s+)"
                                               R"(node (\S+) exiting improperly)")) {
    at(*improper, 1, 2);
    cause.message = absl::StrCat(Where(cause.rank, cause.host), ": ended without finishing");
  } else if (const auto missing = Match(text, R"(execute an executable:\s+Executable: (\S+))")) {
    cause.exit_code = 127;
    cause.message = absl::StrCat("mpirun could not execute ", missing->str(1), " on ", cause.host);
  } else if (const auto killed = Match(text, R"(weft-ranks: rank (\d{1,7}) signal (\d{1,3}))")) {
    at(*killed, 1, 0);
    SetSignal(std::stoi((*killed)[2]), &cause);
  } else if (const auto ended = Match(text, R"(weft-ranks: rank (\d{1,7}) exit (\d{1,3}))")) {
    at(*ended, 1, 0);
    SetExit(std::stoi((*ended)[2]), &cause);
  } else if (WIFSIGNALED(wait_status)) {
    cause.signal = WTERMSIG(wait_status);
    cause.message = absl::StrCat("mpirun on ", cause.host, ": killed by signal ", cause.signal,
                                 " (", strsignal(cause.signal), ")");
  } else if (Match(text, "a non-zero exit code") && WEXITSTATUS(wait_status) > 128) {
    // Before MPI is up mpirun says how, but not who.
    cause.signal = WEXITSTATUS(wait_status) - 128;
    cause.message = absl::StrCat("a worker on ", cause.host, ": killed by signal ", cause.signal,
                                 " (", strsignal(cause.signal), ") while starting");
  } else if (Match(text, "a non-zero exit code")) {
    cause.exit_code = WEXITSTATUS(wait_status);
    cause.message = absl::StrCat("a worker on ", cause.host, ": exited with code ", cause.exit_code,
                                 " while starting");
  } else {
    cause.exit_code = WEXITSTATUS(wait_status);
    cause.message = absl::StrCat("mpirun on ", cause.host, " ended with code ", cause.exit_code,
                                 ": ", FirstWords(text));
  }
  return cause;
}

std::string LastLines(absl::string_view text, int lines, size_t bytes) {
  if (text.size() > bytes) text = text.substr(text.size() - bytes);
  std::vector<absl::string_view> all = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

}  // namespace weft
