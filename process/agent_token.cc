#include "process/agent_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "process/keyed_hash.h"

namespace weft {

// Lengths keep the parts apart, whatever is in names.
std::string AgentToken(absl::string_view secret, const AgentPost& post) {
  const std::string text =
      absl::StrCat("weft agent ", post.allocation, " ", post.job_id.size(), ":", post.job_id, " ",
                   post.machine.size(), ":", post.machine, " ", post.host.size(), ":", post.host);
  return absl::BytesToHexString(KeyedHash(secret, text));
}

}  // namespace weft
