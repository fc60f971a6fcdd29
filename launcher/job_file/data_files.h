// The files that data.train and data.valid name: globs expanded and sorted, existence and
// readability checked, format sniffed.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct DataFileOptions {
  std::string job_folder;      // what relative paths are relative to
  bool check_files = true;     // false: planning where the data is not
  bool has_tokenizer = false;  // `auto` takes text as text
};

// The word at data.format of what SettledData returns where the files are text, which has to be
// tokenised, and each is of the format that its name says; a word of TextFormat where that is
// stated. None is a TokenFormat.
inline constexpr char kTextByName[] = "text by name";

// The key of an entry of data.train that says which key of a row of JSON lines holds the text. It
// stays in what SettledData returns, for whoever tokenises the text.
inline constexpr char kTextKey[] = "text_key";

// Returns section `data` with the files that data.train and data.valid mean, absolute and each by
// its name, and with the format that they have.
Value SettledData(const Value& data, const DataFileOptions& options, Issues* issues,
                  std::vector<std::string>* notes);

// Returns the format that a file's first bytes look like; InvalidArgument if it is of a kind weft
// cannot read, or cannot be told (formats.md of other tools: llm.c, nanoGPT and Megatron .bin,
// JSON lines). `are_ids`: it is said to hold ids (data.dtype), whatever it is called.
absl::StatusOr<TokenFormat> SniffFormat(const std::string& path, bool are_ids);

}  // namespace weft
