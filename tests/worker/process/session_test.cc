#include "worker/process/session.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(LibraryExcess, IsWhatIsInUseBesideTheArenaBeyondThePlan) {
  EXPECT_EQ(LibraryExcess(1700, 1000, 600),
            "cluster.device.library_bytes: 600 are planned, but 700 of the device's memory are in "
            "use beside the arena of 1000; another layout may not fit: weft calibrate measures "
            "them, nvidia-smi shows other processes");
  EXPECT_EQ(LibraryExcess(1600, 1000, 600), "");
  EXPECT_NE(LibraryExcess(1601, 1000, 600), "");
}

TEST(LibraryExcess, IsNoneWhereTheDevicesMemoryIsTheHosts) {
  EXPECT_EQ(LibraryExcess(0, 1000, 0), "");
  EXPECT_EQ(LibraryExcess(0, 0, -1), "");
}

}  // namespace
}  // namespace weft
