#include "launcher/run/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace weft {

int TerminalColumns() {
  constexpr int kUsual = 80;
  if (isatty(STDOUT_FILENO) == 0) return 0;
  const char* const term = std::getenv("TERM");
  if (term == nullptr || absl::string_view(term).empty() || absl::string_view(term) == "dumb") {
    return 0;
  }
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace weft
