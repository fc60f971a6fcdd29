// HandOver is what whoever starts an agent on another host gives it over its standard input: what
// must not stand in a command line, which everybody on both hosts can read. What follows on that
// stream is nothing; its end is the agent's lifeline.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

struct HandOver {
  std::string bundle = {};                      // text of a bundle (process/tls_bundle.h)
  std::map<std::string, std::string> env = {};  // for the agent and whatever it starts
  // The check of the host (host_check.h).
  std::string version = {};     // that the agent has to have
  std::string run_folder = {};  // absolute; empty: not checked
  std::string token = {};       // what the run folder's token file holds
  std::string network = {};     // subnet that the host has to have an address in; empty: any
  friend bool operator==(const HandOver&, const HandOver&) = default;
};

inline constexpr int64_t kLargestHandOver = 1 << 20;

std::string HandOverText(const HandOver& hand_over);

// InvalidArgument if `text` is no HandOverText, whole.
absl::StatusOr<HandOver> ParseHandOver(absl::string_view text);

// Reads exactly one from `fd`, byte by byte where it ends. Unavailable if the stream ends or
// nothing more comes for `timeout_ms`; InvalidArgument if something else comes, or too much.
absl::StatusOr<HandOver> ReadHandOver(int fd, int timeout_ms);

}  // namespace weft
