// SmallRun is the fixture of tests about a run's folder: the good job on one worker, resolved,
// whose run lies in a folder of the test's own.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/run/run_folder.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {

class SmallRun : public ::testing::Test {
 protected:
  JobSpec Job(std::vector<std::string> sets = {}) {
    for (const char* set : {"cluster.slots=1", "parallelism.dp=1", "parallelism.pp=1"}) {
      sets.emplace_back(set);
    }
    const auto file =
        ReadJobText(kGoodJob, folder_.job(), {.sets = std::move(sets), .check_files = true});
    EXPECT_TRUE(file.ok()) << file.status();
    return Resolve(file->job, Layout{.micro_batch_size = 8});
  }
  std::vector<std::string> Data(const JobSpec& job) { return *Fingerprints(job); }
  std::string run() const { return folder_.path() + "/outputs/small"; }

  JobFolder folder_;
};

}  // namespace weft
