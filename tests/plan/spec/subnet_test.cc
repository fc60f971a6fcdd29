#include "plan/spec/subnet.h"

#include <gtest/gtest.h>

#include <utility>

namespace weft {
namespace {

TEST(Subnet, HoldsTheAddressesThatShareItsBits) {
  struct Case {
    const char* subnet;
    const char* address;
    bool inside;
  };
  for (const Case& each :
       {Case{"10.78.0.0/24", "10.78.0.255", true}, Case{"10.78.0.0/24", "10.78.1.0", false},
        Case{"10.78.0.0/23", "10.78.1.0", true}, Case{"10.78.0.12/32", "10.78.0.12", true},
        Case{"10.78.0.12/32", "10.78.0.13", false}, Case{"0.0.0.0/0", "192.0.2.1", true},
        Case{"0.0.0.0/0", "fd00::1", false}, Case{"fd00:1::/64", "fd00:1::2:3", true},
        Case{"fd00:1::/64", "fd00:1:0:1::", false}, Case{"::/0", "1:2:3:4:5:6:7:8", true}}) {
    const auto subnet = ParseSubnet(each.subnet);
    const auto address = ParseIpAddress(each.address);
    ASSERT_TRUE(subnet.ok() && address.ok()) << each.subnet << " " << each.address;
    EXPECT_EQ(subnet->Contains(*address), each.inside) << each.subnet << " " << each.address;
  }
}

TEST(Subnet, RefusesWhatIsNone) {
  for (const char* text :
       {"", "10.78.0.0", "10.78.0.0/33", "10.78.0.0/-1", "10.78.0.0/x", "10.78.0/24",
        "10.78.0.256/24", "10.78.0.1/24", "eth0", "fd00::/129", "fd00::1/64", "1::2::3/64",
        "1:2:3:4:5:6:7/64", "1:2:3:4:5:6:7:8:9/64", "12345::/64", "10.78.0.0/24/1"}) {
    EXPECT_EQ(ParseSubnet(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace weft
