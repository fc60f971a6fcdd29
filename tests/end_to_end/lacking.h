// This file answers, in one place, for what a test needs and this machine lacks: by hand the test
// is skipped with the reason, in the gate (WEFT_GATE=1, which deploy/test.sh sets) it fails, for
// the gate promises that nothing was left out.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace weft {

inline bool IsInTheGate() {
  const char* const gate = std::getenv("WEFT_GATE");
  return gate != nullptr && std::string(gate) == "1";
}

}  // namespace weft

// Ends the test, or its SetUp, unless `lacking` is empty: it says what is not there and how it
// comes there, "/usr/sbin/sshd is not installed; run deploy/install_packages.sh test". A macro, as
// GoogleTest's own are: they return from whoever calls them.
#define END_FOR_WANT_OF(lacking)                                                              \
  do {                                                                                        \
    const std::string end_for_want_of = (lacking);                                            \
    if (end_for_want_of.empty()) break;                                                       \
    if (::weft::IsInTheGate()) GTEST_FAIL() << "the gate skips nothing: " << end_for_want_of; \
    GTEST_SKIP() << end_for_want_of;                                                          \
  } while (false)
