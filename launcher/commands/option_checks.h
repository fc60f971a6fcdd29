// Checks of the values of options, in the words of the rest of weft: CLI11's own write a bound out
// to its 309th digit.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

namespace weft {

// A whole number of `least` or more, and of `most` or less if there is one:
// "-1 is out of range; use 0 or more".
CLI::Validator WholeNumber(int64_t least, std::optional<int64_t> most = std::nullopt);

// Any number of `least` to `most`: "-1 is out of range; use 0 to 1000000". REQUIRES: both are short
// when written with %g.
CLI::Validator NumberWithin(double least, double most);

// Checks as NumberWithin does, but for more than `least`:
// "0 is out of range; use more than 0, at most 1".
CLI::Validator NumberAbove(double least, double most);

}  // namespace weft
