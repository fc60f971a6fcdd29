#include "launcher/machine/log_tail.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {

std::string ReadTail(const std::string& path, int64_t bytes) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const int64_t size = stream.tellg();
  stream.seekg(std::max<int64_t>(0, size - bytes));
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string LastLines(absl::string_view text, int lines, size_t bytes) {
  if (text.size() > bytes) text = text.substr(text.size() - bytes);
  std::vector<absl::string_view> all = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

}  // namespace weft
