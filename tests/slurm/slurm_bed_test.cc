// The bed is a Slurm: a step runs on three hosts of their own names, and nothing is left of it.
#include "tests/slurm/slurm_bed.h"

#include <gtest/gtest.h>

#include "tests/end_to_end/lacking.h"

namespace weft {
namespace {

TEST(SlurmBed, RunsAStepOnThreeNodesAndLeavesNothing) {
  END_FOR_WANT_OF(SlurmBed::Missing());
  SlurmBed bed;
  EXPECT_EQ(bed.Head("cd " + bed.shared() + " && srun -N3 --ntasks-per-node=1 hostname | sort"),
            "h1\nh2\nh3");
  bed.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
