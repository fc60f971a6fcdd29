#include "launcher/service/service_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Case {
  ServiceWords words;
  std::map<std::string, std::string> variables;
  bool is_installed = false;
  std::string target;      // found
  std::string error = {};  // else: names
  std::string bundle = {};
};

TEST(FindService, TakesTheOptionThenTheVariableThenTheServicesSocket) {
  const std::vector<Case> cases = {
      {{"unix:/a"}, {{"WEFT_COORDINATOR", "unix:/b"}}, true, "unix:/a"},
      {{"/a"}, {}, false, "unix:/a"},
      {{}, {{"WEFT_COORDINATOR", "unix:/b"}}, true, "unix:/b"},
      {{}, {}, true, "unix:/run/weft/weftd.sock"},
      {{}, {}, false, "", "give --coordinator ADDRESS, or set WEFT_COORDINATOR"},
      {{"unix:a"}, {}, true, "", "--coordinator: unix:a is no address; use unix:/"},
      {{}, {{"WEFT_COORDINATOR", "nonsense"}}, true, "", "WEFT_COORDINATOR: nonsense is no"},
      {{"h:1"}, {}, true, "", "h:1 is off this host, where only TLS is spoken; give --tls"},
      {{"h:1", "/b.pem"}, {{"WEFT_TLS", "/c.pem"}}, true, "h:1", "", "/b.pem"},
      {{"h:1"}, {{"WEFT_TLS", "/c.pem"}}, true, "h:1", "", "/c.pem"},
  };
  for (const Case& each : cases) {
    const auto found = FindService(
        each.words,
        [&](const char* name) {
          const auto set = each.variables.find(name);
          return set == each.variables.end() ? std::string() : set->second;
        },
        [&](const std::string&) { return each.is_installed; });
    if (each.error.empty()) {
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->target, each.target);
      EXPECT_EQ(found->bundle.file, each.bundle);
    } else {
      EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(found.status().message()), HasSubstr(each.error));
    }
  }
}

}  // namespace
}  // namespace weft
