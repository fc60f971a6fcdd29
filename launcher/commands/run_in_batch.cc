#include "launcher/commands/run_in_batch.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/machine/ask_program.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kFluxAnswerMs = 30000;

absl::StatusOr<std::string> ReadHosts(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (!(in && text << in.rdbuf())) return absl::NotFoundError("it cannot be read");
  return text.str();
}

absl::StatusOr<std::string> AskFlux() {
  ASSIGN_OR_RETURN(const ProgramAnswer answer,
                   AskProgram({"flux", "resource", "R"}, "", kFluxAnswerMs));
  if (answer.exit_code == 0) return answer.out;
  return absl::UnavailableError(
      absl::StrCat("it ended with ", answer.exit_code, " and said: ", answer.err));
}

}  // namespace

absl::StatusOr<std::optional<BatchHosts>> BatchHostsHere() {
  return FindBatchHosts({.variable = [](const char* name) -> const char* { return getenv(name); },
                         .read_file = ReadHosts,
                         .flux_resources = AskFlux});
}

}  // namespace weft
