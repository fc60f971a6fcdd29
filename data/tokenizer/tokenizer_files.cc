#include "data/tokenizer/tokenizer_files.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// A file is all of a tokenizer, one part of several, or says more about it.
enum class Part { kWhole, kOneOfSeveral, kBeside };

struct TokenizerFile {
  const char* name;
  Part part;
  bool is_needed = true;  // of several
};
// A folder's tokenizer is the first that is whole; without one, what the several make.
constexpr TokenizerFile kFiles[] = {
    {"tokenizer.json", Part::kWhole},   {"tekken.json", Part::kWhole},
    {"tokenizer.model", Part::kWhole},  {kVocabFile, Part::kOneOfSeveral},
    {kMergesFile, Part::kOneOfSeveral}, {kMoreTokensFile, Part::kOneOfSeveral, false},
    {kConfigFile, Part::kBeside},       {"special_tokens_map.json", Part::kBeside},
};

// Returns those files of a part that are there.
std::vector<std::string> Found(const std::string& folder, Part part) {
  std::vector<std::string> found;
  for (const TokenizerFile& file : kFiles) {
    std::string path = absl::StrCat(folder, "/", file.name);
    std::error_code error;
    if (file.part == part && std::filesystem::exists(path, error)) found.push_back(std::move(path));
  }
  return found;
}

}  // namespace

std::optional<std::string> WholeTokenizerIn(const std::string& folder) {
  const std::vector<std::string> found = Found(folder, Part::kWhole);
  return found.empty() ? std::nullopt : std::optional(found[0]);
}

bool HoldsTokenizer(const std::string& folder) {
  std::error_code error;
  return WholeTokenizerIn(folder) ||
         std::filesystem::exists(absl::StrCat(folder, "/", kVocabFile), error);
}

std::vector<std::string> FilesBesideTokenizer(const std::string& folder) {
  return Found(folder, Part::kBeside);
}

std::vector<std::string> FilesOfTokenizer(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  const std::optional<std::string> whole = WholeTokenizerIn(path);
  std::vector<std::string> files =
      whole ? std::vector<std::string>{*whole} : Found(path, Part::kOneOfSeveral);
  for (std::string& beside : Found(path, Part::kBeside)) files.push_back(std::move(beside));
  return files;
}

std::string TokenizerFileNames() {
  std::string whole, several;
  for (const TokenizerFile& file : kFiles) {
    if (file.part == Part::kWhole) absl::StrAppend(&whole, file.name, ", ");
    if (file.part != Part::kOneOfSeveral || !file.is_needed) continue;
    absl::StrAppend(&several, several.empty() ? "" : " and ", file.name);
  }
  return absl::StrCat(whole, "or ", several);
}

}  // namespace weft
