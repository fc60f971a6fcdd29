#include "process/folder_token.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

constexpr size_t kTokenDigits = 32;

EntryPath TokenFile(const std::string& folder, absl::string_view token,
                    const std::string& run_folder) {
  return EntryOf(absl::StrCat(folder, "/.hosts.", token.substr(0, kTokenDigits / 2)), run_folder);
}

// Returns why it cannot be written; empty: it is.
std::string Write(const EntryPath& path, EntryUse use, const std::string& text) {
  const OpenedEntry file = OpenEntry(path, use);
  if (!file.ok()) return file.why;
  const bool written =
      write(file.descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = written ? "" : std::strerror(errno);
  close(file.descriptor);
  return why;
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

absl::Status WriteToken(const std::string& folder, const std::string& token,
                        const std::string& run_folder) {
  const EntryPath path = TokenFile(folder, token, run_folder);
  const std::string why = Write(path, EntryUse::kRewrite, token + "\n");
  if (why.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path.text(), ": cannot be written: ", why));
}

bool HoldsToken(const std::string& folder, absl::string_view token, const std::string& run_folder) {
  const OpenedEntry file = OpenEntry(TokenFile(folder, token, run_folder), EntryUse::kRead);
  if (!file.ok()) return false;
  std::string found(kTokenDigits, '\0');
  const bool is_read = read(file.descriptor, found.data(), found.size()) > 0;
  close(file.descriptor);
  return is_read && found == token;
}

void RemoveToken(const std::string& folder, const std::string& token,
                 const std::string& run_folder) {
  RemoveEntry(TokenFile(folder, token, run_folder));
}

std::string WhyNotWritable(const std::string& folder, const std::string& run_folder) {
  const EntryPath path = TokenFile(folder, NewToken(), run_folder);
  const std::string why = Write(path, EntryUse::kCreate, "weft\n");
  RemoveEntry(path);
  return why;
}

}  // namespace weft
