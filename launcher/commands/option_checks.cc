#include "launcher/commands/option_checks.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// `allowed`: "0 or more". `accepts` tells of a number whether it is.
template <typename Accepts>
CLI::Validator NumberThat(Accepts accepts, std::string allowed) {
  const auto check = [accepts, allowed](std::string& text) -> std::string {
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
      return absl::StrCat("found ", text, "; expected a number, ", allowed);
    }
    return accepts(value) ? "" : absl::StrCat(text, " is out of range; use ", allowed);
  };
  return CLI::Validator(check, allowed);
}

}  // namespace

CLI::Validator WholeNumber(int64_t least, std::optional<int64_t> most) {
  const std::string allowed =
      most ? absl::StrCat(least, " to ", *most) : absl::StrCat(least, " or more");
  const auto check = [least, most, allowed](std::string& text) -> std::string {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value)) {
      return absl::StrCat("found ", text, "; expected a whole number, ", allowed);
    }
    if (value >= least && (!most || value <= *most)) return "";
    return absl::StrCat(value, " is out of range; use ", allowed);
  };
  return CLI::Validator(check, allowed);
}

CLI::Validator NumberWithin(double least, double most) {
  return NumberThat([=](double value) { return value >= least && value <= most; },
                    absl::StrCat(least, " to ", most));
}

CLI::Validator NumberAbove(double least, double most) {
  return NumberThat([=](double value) { return value > least && value <= most; },
                    absl::StrCat("more than ", least, ", at most ", most));
}

}  // namespace weft
