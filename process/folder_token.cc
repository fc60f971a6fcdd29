#include "process/folder_token.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kTokenDigits = 32;

std::string TokenFile(const std::string& folder, absl::string_view token) {
  return absl::StrCat(folder, "/.hosts.", token.substr(0, kTokenDigits / 2));
}

}  // namespace

std::string NewToken() {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenDigits) {
    absl::StrAppend(&token, absl::Hex(random(), absl::kZeroPad8));
  }
  return token;
}

absl::Status WriteToken(const std::string& folder, const std::string& token) {
  const std::string path = TokenFile(folder, token);
  std::ofstream file(path);
  file << token << "\n" << std::flush;
  if (file) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
}

bool HoldsToken(const std::string& folder, absl::string_view token) {
  std::ifstream file(TokenFile(folder, token));
  std::string found;
  file >> found;
  return token.size() == kTokenDigits && found == token;
}

void RemoveToken(const std::string& folder, const std::string& token) {
  unlink(TokenFile(folder, token).c_str());
}

std::string WhyNotWritable(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/.hosts.", NewToken());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return std::strerror(errno);
  const std::string text = "weft\n";
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = written ? "" : std::strerror(errno);
  close(file);
  unlink(path.c_str());
  return why;
}

}  // namespace weft
