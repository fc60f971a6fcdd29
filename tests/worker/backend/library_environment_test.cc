#include "worker/backend/library_environment.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(LibraryEnvironment, LosesWhatChangesNumbersOrPrints) {
  for (const char* variable :
       {"OPENBLAS_BLOCK_FACTOR", "OPENBLAS_VERBOSE", "GOTO_NUM_THREADS", "DNNL_MAX_CPU_ISA",
        "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_VERBOSE", "OMP_THREAD_LIMIT", "OMP_DYNAMIC"}) {
    EXPECT_TRUE(IsUnsetForLibraries(variable)) << variable;
  }
  for (const char* variable :
       {"OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "OMP_PROC_BIND",
        "OMP_PLACES", "GOMP_CPU_AFFINITY", "OMPI_MCA_btl", "PATH", "DNNL"}) {
    EXPECT_FALSE(IsUnsetForLibraries(variable)) << variable;
  }
}

class InAnEnvironment : public testing::Test {
 protected:
  InAnEnvironment() {
    const char* const before = std::getenv("OPENBLAS_CORETYPE");
    had_ = before != nullptr;
    before_ = had_ ? before : "";
    SettleLibraryEnvironment();
  }
  ~InAnEnvironment() override {
    unsetenv("OPENBLAS_CORETYPE");
    if (had_) setenv("OPENBLAS_CORETYPE", before_.c_str(), /*overwrite=*/1);
  }

 private:
  bool had_ = false;
  std::string before_;
};

TEST_F(InAnEnvironment, SaysWhatIsNotTakenOnce) {
  setenv("DNNL_VERBOSE", "1", /*overwrite=*/1);
  setenv("OMP_THREAD_LIMIT", "1", /*overwrite=*/1);
  EXPECT_THAT(SettleLibraryEnvironment(),
              UnorderedElementsAre(HasSubstr("DNNL_VERBOSE is ignored"),
                                   HasSubstr("OMP_THREAD_LIMIT is ignored")));
  EXPECT_EQ(std::getenv("DNNL_VERBOSE"), nullptr);
  EXPECT_EQ(std::getenv("OMP_THREAD_LIMIT"), nullptr);
  EXPECT_THAT(SettleLibraryEnvironment(), IsEmpty());
}

TEST_F(InAnEnvironment, TakesKernelsThatThereAreAndNoOthers) {
  setenv("OPENBLAS_CORETYPE", "Atom9", /*overwrite=*/1);
  EXPECT_THAT(SettleLibraryEnvironment(), ElementsAre(HasSubstr("OPENBLAS_CORETYPE=Atom9")));
  const char* const settled = std::getenv("OPENBLAS_CORETYPE");
  EXPECT_STRNE(settled == nullptr ? "" : settled, "Atom9");
  setenv("OPENBLAS_CORETYPE", "Sandybridge", /*overwrite=*/1);
  SettleLibraryEnvironment();
  EXPECT_STREQ(std::getenv("OPENBLAS_CORETYPE"), "Sandybridge");
}

TEST(NcclEnvironment, AsksForTheOrderOfCallsUnlessAPersonSaysOtherwise) {
  constexpr char kOrder[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
  unsetenv(kOrder);
  AskForLaunchOrder();
  EXPECT_STREQ(std::getenv(kOrder), "1");
  setenv(kOrder, "0", /*overwrite=*/1);
  AskForLaunchOrder();
  EXPECT_STREQ(std::getenv(kOrder), "0");
  unsetenv(kOrder);
}

}  // namespace
}  // namespace weft
