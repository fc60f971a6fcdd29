// Version says which weft this is. One string tells builds apart; a skew between launcher,
// coordinator and worker is refused by comparing it.
#pragma once
#include <string>

namespace weft {

// "0.1.0 (1a2b3c4d5e6f, protobuf 3.21.12, grpc 1.51.1)": commit and wire libraries of this build.
std::string Version();

// Returns a text for people: "weft <Version()>, sqlite 3.40.1, <instruction set of this CPU>".
std::string VersionText();

}  // namespace weft
