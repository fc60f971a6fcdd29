// A folder that several hosts share is known by its content: a path that exists on both may be two
// folders. One writes a random token into a file that is named after it, the others read it.
// `run_folder`: another user may put links below it, and none of those is followed; empty: the
// folder lies in none.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

std::string NewToken();

// FailedPrecondition if the file cannot be written.
absl::Status WriteToken(const std::string& folder, const std::string& token,
                        const std::string& run_folder = "");
// Whether the folder holds the token. Nobody has asked for that name before it was written there: a
// network file system remembers what it has not found.
bool HoldsToken(const std::string& folder, absl::string_view token,
                const std::string& run_folder = "");
void RemoveToken(const std::string& folder, const std::string& token,
                 const std::string& run_folder = "");

// Whether this process can add a file to the folder; else the reason, "No space left on device".
std::string WhyNotWritable(const std::string& folder, const std::string& run_folder = "");

}  // namespace weft
