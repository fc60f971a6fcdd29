// Messages of weft.v1 as JSON for programs: fields by their names in the .proto, all of them but
// those of a oneof that are not set; 64-bit numbers as numbers, enums by name. In ASCII, so that it
// is harmless on a terminal too. Pure.
#pragma once
#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace weft {

// In one line, without a newline at its end.
std::string MessageJson(const google::protobuf::Message& message);
// An array, an element a line; with a newline at its end.
std::string ArrayJson(const std::vector<std::string>& elements);

}  // namespace weft
