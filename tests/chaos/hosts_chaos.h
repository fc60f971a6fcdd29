// HostsChaos: runs on three hosts to which faults are done, one after the other. A disk of the
// test's own, 128 MiB in memory, lies under the run folder and can be filled. What a fault has to
// lead to is known before it is done: nobody is blamed and the generation goes on, or a rank or a
// host is, by name. Needs root.
#pragma once
#include <random>
#include <set>
#include <string>

#include "tests/hosts/hosts_run.h"

namespace weft {

// An Expected says what the run has to make of a fault. A generation that ends has one first cause.
struct Expected {
  bool struck = true;        // false: there was nobody to do it to
  bool goes_on = false;      // the generation does, and nobody is blamed
  std::string host = {};     // blamed; empty: any
  int rank = -1;             // blamed; -1: any
  std::string said = {};     // part of the reason
  std::string or_said = {};  // in place of that; empty: nothing is
};

class HostsChaos : public HostsRun {
 protected:
  static constexpr int64_t kStepsBetween = 25;  // a checkpoint is committed in between

  void SetUp() override;
  void TearDown() override;

  // `weft run` on the three hosts. The variables are those of all that it starts on host 1, of
  // weftd, too; those of the ranks go into the job's `cluster.env`.
  void StartChaos(const std::string& job, const std::vector<std::string>& variables);

  // A process whose command line matches; of several, `draw` says which.
  struct Victim {
    int pid = 0;    // on its host
    int rank = -1;  // that it is, or is to start
  };
  Victim Find(int host, const std::string& pattern, unsigned draw);
  bool Signal(int host, const Victim& victim, const std::string& signal);

  // Says what is wrong: empty, if the run is as it should be after the fault, which was done in
  // that generation at that step. Waits for kStepsBetween more steps.
  std::string WrongAfter(const Expected& expected, int64_t generation, int64_t step);
  // Stops the run; says what is wrong with all that it left.
  std::string WrongEnd();
  // No step is told twice in one generation, and losses are those of the curve.
  std::string WrongLosses(const std::map<int64_t, std::string>& curve) const;
  std::string WrongCheckpoints() const;

  // Fills the disk that the run folder lies on, and makes room again.
  void FillDisk();
  void EmptyDisk();

  // The last curve of one host, as long as any that was asked for.
  const std::map<int64_t, std::string>& CurveOfAtLeast(int64_t steps);

 private:
  std::string WrongCulprit(const Expected& expected, int64_t generation) const;
  std::string WrongRanks();
};

}  // namespace weft
