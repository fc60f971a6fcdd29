// The files by which people publish tokenizers: which of them one is opened from, and which lie
// beside those. Any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace weft {

// A tokenizer of two files, and what may be beside them.
inline constexpr char kVocabFile[] = "vocab.json";
inline constexpr char kMergesFile[] = "merges.txt";
inline constexpr char kMoreTokensFile[] = "added_tokens.json";
inline constexpr char kConfigFile[] = "tokenizer_config.json";

// Returns the path of the first file of the folder that is a whole tokenizer; nullopt: there is
// none.
std::optional<std::string> WholeTokenizerIn(const std::string& folder);

// Says whether a tokenizer lies in the folder.
bool HoldsTokenizer(const std::string& folder);

// Returns those files of a folder that say more of its tokenizer, whatever kind that is of.
std::vector<std::string> FilesBesideTokenizer(const std::string& folder);

// Returns every file that Tokenizer::Open(path) reads, the tokenizer's own first. `path`: a folder,
// or a file, which stands for itself.
std::vector<std::string> FilesOfTokenizer(const std::string& path);

// "tokenizer.json, tekken.json, tokenizer.model, or vocab.json and merges.txt".
std::string TokenizerFileNames();

}  // namespace weft
