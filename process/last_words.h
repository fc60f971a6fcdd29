// A program's last words where the system has given it no memory or no thread: the limits that it
// runs under, in place of the C++ library's "terminate called".
#pragma once
#include <string>

namespace weft {

// "ulimit -v is 2097152 KiB, ulimit -u is 100": the limits on memory and threads that are set;
// empty: none is.
std::string LimitsOnProcesses();

// From now on an exception that nobody takes ends the process with a sentence, and 3 where memory
// was missing, 1 else.
void HoldLastWords();

}  // namespace weft
