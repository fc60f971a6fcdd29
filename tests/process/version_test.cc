#include "process/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

TEST(Version, NamesReleaseCommitAndWireLibraries) {
  EXPECT_THAT(Version(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+ "
                                      "\\(([0-9a-f]{12}|unknown), protobuf [0-9]+\\.[0-9]+\\.[0-9]+"
                                      ", grpc [0-9]+\\.[0-9]+\\.[0-9]+\\)"));
  EXPECT_THAT(VersionText(), StartsWith("weft " + Version()));
  EXPECT_THAT(VersionText(), HasSubstr("sqlite 3."));
}

}  // namespace
}  // namespace weft
