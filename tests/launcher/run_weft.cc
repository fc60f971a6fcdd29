#include "tests/launcher/run_weft.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/places.h"

namespace weft {

Ran RunWeft(const JobFolder& folder, const std::string& arguments, const RunWeftOptions& options) {
  const std::string err_path = folder.path() + "/err.txt";
  const std::string command =
      absl::StrCat("cd ", options.directory.empty() ? folder.path() : options.directory,
                   " && XDG_STATE_HOME=", folder.path(), "/state timeout ", options.most_s, " env ",
                   options.path.empty() ? "" : absl::StrCat("PATH=", options.path, " "),
                   options.program.empty() ? BinaryPath("/bin/weft") : options.program, " ",
                   arguments, " 2>", err_path, " <", options.input);
  Ran ran;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer;
  for (size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    ran.out.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream err(err_path);
  ran.err.assign(std::istreambuf_iterator<char>(err), {});
  return ran;
}

}  // namespace weft
