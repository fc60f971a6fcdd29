// Version says which weft this is. One string tells builds apart; launcher and coordinator, and all
// agents and workers of a job, have to be of one build each. Coordinator and agents have to speak
// one wire version, whatever their builds.
#pragma once
#include <string>

namespace weft {

// The wire between agents and coordinator (proto/agent.proto, proto/fleet.proto). It is raised by a
// change that the side before does not understand.
inline constexpr int kWireVersion = 1;

// "0.1.0 (1a2b3c4d5e6f, protobuf 3.21.12, grpc 1.51.1)": commit and wire libraries of this build.
std::string Version();

// Returns a text for people: "weft <Version()>, sqlite 3.40.1, <instruction set of this CPU>".
std::string VersionText();

}  // namespace weft
