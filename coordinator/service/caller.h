// Who calls weftd, and what for.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

enum class Role {
  kViewer,     // may look
  kSubmitter,  // may look, submit, and change jobs of its own
  kOperator,   // may do all
};

struct Caller {
  std::string name;  // user name, or the name in its certificate
  int64_t uid = -1;  // -1: it came over the network
  Role role = Role::kViewer;
};

}  // namespace weft
