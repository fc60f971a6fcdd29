// The parity tests claim these things of a job and a layout, each claim stated once: gtest
// failures, not return values. A curve that is only compared with is trained once for all tests
// (kept_curves.h); what a claim is about is trained by each call.
#pragma once
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/curve.h"

namespace weft {

// A layout by its name in a table of tests.
struct LayoutCase {
  const char* name;
  Layout layout;
};
std::string NameOf(const testing::TestParamInfo<LayoutCase>& tested);

struct BugCase {
  const char* name;
  PlantedBug bug;
  Layout layout;
  const char* seen_in;  // the words of the difference that must be among those found
};
std::string NameOf(const testing::TestParamInfo<BugCase>& tested);

// Fails the test, and returns an empty curve, if the run fails. Here and below, layouts are given
// as many microbatches as the job's batch needs.
Curve MustTrain(ParityJob parity);
// The same, but for a curve that is only compared with.
Curve MustHave(ParityJob parity);

// One rank that takes the whole batch at once.
Curve SingleRank(const JobSpec& job);

// One rank as OneRankLike says; fails the test if it goes apart from SingleRank.
Curve SingleRankLike(const JobSpec& job, const Layout& layout);

// AdamW forgives a gradient that is off by a factor; SGD without clipping does not.
JobSpec WithSgdAndNoClipping(JobSpec job);

// The curve of `layout` is that of a single rank, which falls by a nat: flatter ones prove little.
void ExpectTrainsAsASingleRank(const JobSpec& job, const Layout& layout);

// Losses, gradients, and weights and moments after the last step.
void ExpectTheSameBitsTwice(const JobSpec& job, const Layout& layout);

// The same, of ranks that are threads and of ranks that are processes under mpirun.
void ExpectTheSameBitsOverMpi(JobSpec job, const Layout& layout);

// The comparison sees the bug, naming `seen_in` and, in fp32, the curve; and nothing without it.
void ExpectSeen(const JobSpec& job, const BugCase& bug);

struct WitnessCase {
  const char* name;
  JobSpec job;  // of 10 steps
};

// Ten steps and every gradient of the first, on one rank, are the NumPy model's. Needs NumPy.
void ExpectAgreesWithNumpy(const std::vector<WitnessCase>& cases);

// Committed numbers keep script and text from changing unnoticed, and stand in where Python lacks
// NumPy. UPDATE_GOLDEN=1 rewrites them.
void ExpectWhatNumpySaidBefore(const JobSpec& job, const std::string& golden_path);

}  // namespace weft
