// The hosts of a fleet as people read them. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "proto/weft/v1/control.pb.h"

namespace weft {

std::string HostsTable(const std::vector<v1::Host>& hosts, int64_t now_unix_ms, int width);
// One line: "n1: drained (disk), 2 of 8 slots used by job-17".
std::string HostLine(const v1::Host& host, int64_t now_unix_ms);
// "absent", "drained", "left out 42m", "not used" (no job is placed there any more), "full" or
// "ready".
std::string HostState(const v1::Host& host, int64_t now_unix_ms);

}  // namespace weft
