// SlurmRun: jobs that are submitted by `weft submit` on the head of a SlurmBed, with the real
// binaries, sbatch, srun and mpirun. After each test nothing is left on any host. The tests of a
// suite have one bed, and train each curve that losses are held against once.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/end_to_end/step_metrics.h"
#include "tests/hosts/kept_bed.h"
#include "tests/slurm/slurm_bed.h"

namespace weft {

struct SlurmJobWords {
  std::string name = "tiny";
  std::string parallelism = "dp: 3, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  std::string cluster = "slots: 2, nodes: 3, scheduler: slurm";
  // The nodes share this machine's cores with other tests, so that one may be found too slow.
  std::string more = "fault_tolerance: {preflight: false}\n";
  int64_t steps = 60;
  int64_t save_every = 10;  // steps
};

class SlurmRun : public ::testing::Test {
 protected:
  using Bed = KeptBed<SlurmBed, std::string>;

  void SetUp() override;
  void TearDown() override;
  static void TearDownTestSuite() { Bed::OfProcess().TakeDown(); }

  std::string folder(const std::string& name = "tiny") const;
  // Writes a job file and returns its path.
  std::string WriteJob(const SlurmJobWords& words);
  // Runs weft on the head, whatever it answers.
  HostBed::Answer Weft(const std::string& arguments);
  // Submits it; returns Slurm's number. Fails the test if there is none.
  std::string Submit(const std::string& job, const std::string& options = "");
  // Waits until Slurm has completed the job; fails the test if it ends otherwise.
  void AwaitCompleted(const std::string& job, double timeout_s = 300);
  // The node is dead, and Slurm gives it up, as it does by itself after SlurmdTimeout.
  void LoseNode(int node);
  void BringBackNode(int node);
  // Slurm lets a requeued job wait for two minutes; this lets it go at once.
  void LetGoOn(const std::string& job);

  std::vector<StepMetrics> Steps(const std::string& name = "tiny") const {
    return MetricsOf(folder(name));
  }
  bool WaitForStep(int64_t step, const std::string& name = "tiny", double timeout_s = 180) const;
  // The last step that was done; 0: none.
  int64_t LastStep(const std::string& name = "tiny") const;
  int64_t LastGeneration() const;
  // The loss of each step; one that was done again has to have the same.
  std::map<int64_t, std::string> Curve(const std::string& name = "tiny") const;
  // The same job on the head alone, without Slurm; trained once for each layout and number of
  // steps.
  std::map<int64_t, std::string> LocalCurve(SlurmJobWords words = {});
  // No loss differs by more than 1e-5 of itself from the curve's.
  void ExpectNear(const std::map<int64_t, std::string>& curve) const;
  std::string Words(const std::string& name = "tiny") const;  // for a failure's text

  // Lines for slurm.conf that the suite's bed has beside its own.
  virtual std::string MoreOfSlurm() const { return ""; }

  SlurmBed* bed_ = nullptr;
};

}  // namespace weft
