#include "launcher/hosts/hand_over.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

// "weft-hand-over 1 <bytes that follow>\n", then records: "<kind> <name> <bytes>\n<value>\n".
constexpr absl::string_view kOpening = "weft-hand-over 1 ";
constexpr size_t kLongestOpening = 40;

struct TextField {
  absl::string_view name;
  std::string HandOver::*member;
};
constexpr TextField kFields[] = {{"bundle", &HandOver::bundle},
                                 {"version", &HandOver::version},
                                 {"run_folder", &HandOver::run_folder},
                                 {"token", &HandOver::token},
                                 {"network", &HandOver::network}};

absl::Status NoHandOver() {
  return absl::InvalidArgumentError(
      "standard input: holds no bundle from weft run; this option is for weft run alone");
}

std::string Record(absl::string_view kind, absl::string_view name, absl::string_view value) {
  return absl::StrCat(kind, " ", name, " ", value.size(), "\n", value, "\n");
}

// Takes one record off `text`. False: it is none.
bool TakeRecord(absl::string_view* text, HandOver* hand_over) {
  const size_t end = text->find('\n');
  if (end == absl::string_view::npos) return false;
  const std::vector<std::string> words = absl::StrSplit(text->substr(0, end), ' ');
  text->remove_prefix(end + 1);
  size_t bytes = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[2], &bytes)) return false;
  if (bytes >= text->size() || (*text)[bytes] != '\n') return false;
  const std::string value(text->substr(0, bytes));
  text->remove_prefix(bytes + 1);
  if (words[0] == "env") {
    hand_over->env[words[1]] = value;
    return true;
  }
  const auto* const field =
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const TextField& each) { return each.name == words[1]; });
  if (words[0] != "text" || field == std::end(kFields)) return false;
  hand_over->*field->member = value;
  return true;
}

// One byte at a time up to the line's end, then in one piece: not a byte of what follows is taken.
absl::Status ReadSome(int fd, int timeout_ms, size_t most, std::string* text) {
  pollfd readable{fd, POLLIN, 0};
  const int ready = poll(&readable, 1, timeout_ms);
  if (ready < 0 && errno == EINTR) return absl::OkStatus();
  if (ready <= 0) return absl::UnavailableError("standard input: nothing came; is ssh stuck?");
  std::string bytes(most, '\0');
  const ssize_t got = read(fd, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return absl::OkStatus();
  if (got <= 0) return absl::UnavailableError("standard input: ended before it said anything");
  text->append(bytes, 0, static_cast<size_t>(got));
  return absl::OkStatus();
}

}  // namespace

std::string HandOverText(const HandOver& hand_over) {
  std::string records;
  for (const TextField& field : kFields) {
    records += Record("text", field.name, hand_over.*field.member);
  }
  for (const auto& [name, value] : hand_over.env) records += Record("env", name, value);
  return absl::StrCat(kOpening, records.size(), "\n", records);
}

absl::StatusOr<HandOver> ParseHandOver(absl::string_view text) {
  size_t bytes = 0;
  const size_t end = text.find('\n');
  if (end == absl::string_view::npos || !absl::StartsWith(text, kOpening) ||
      !absl::SimpleAtoi(text.substr(kOpening.size(), end - kOpening.size()), &bytes) ||
      text.size() != end + 1 + bytes) {
    return NoHandOver();
  }
  text.remove_prefix(end + 1);
  HandOver hand_over;
  while (!text.empty()) {
    if (!TakeRecord(&text, &hand_over)) return NoHandOver();
  }
  return hand_over;
}

absl::StatusOr<HandOver> ReadHandOver(int fd, int timeout_ms) {
  std::string text;
  while (!absl::EndsWith(text, "\n")) {
    if (text.size() > kLongestOpening) return NoHandOver();
    RETURN_IF_ERROR(ReadSome(fd, timeout_ms, 1, &text));
  }
  absl::string_view size = absl::StripSuffix(text, "\n");
  int64_t bytes = 0;
  if (!absl::ConsumePrefix(&size, kOpening) || !absl::SimpleAtoi(size, &bytes) || bytes < 0 ||
      bytes > kLargestHandOver) {
    return NoHandOver();
  }
  const size_t whole = text.size() + static_cast<size_t>(bytes);
  while (text.size() < whole) {
    RETURN_IF_ERROR(ReadSome(fd, timeout_ms, whole - text.size(), &text));
  }
  return ParseHandOver(text);
}

}  // namespace weft
