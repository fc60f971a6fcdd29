// weft stop and weft logs of a job in pods, run as a person would, with a kubectl that writes down
// what it is asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/launcher/submitted_jobs.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KubernetesCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(bin_);
    WriteJob("");
  }
  void WriteJob(const std::string& more) {
    std::ofstream(job_) << "job: {name: Tiny_1, output_dir: /data/runs}\n"
                        << kTiny
                        << "cluster: {profile: cpu, slots: 2, nodes: 2, scheduler: kubernetes, "
                           "image: 'weft:1', volume: shared, volume_path: /data"
                        << more << "}\n";
  }
  // A kubectl that does `script` after writing its words down.
  void PlayKubectl(const std::string& script) {
    const std::string path = bin_ + "/kubectl";
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" >> " << asked_ << "\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  Ran Weft(const std::string& arguments) { return RunWeft(folder_, arguments, {.path = bin_}); }
  std::string Asked() const {
    std::ostringstream text;
    text << std::ifstream(asked_).rdbuf();
    return text.str();
  }

  JobFolder folder_;
  const std::string bin_ = folder_.path() + "/bin";
  const std::string asked_ = folder_.path() + "/asked";
  const std::string job_ = folder_.path() + "/pods.yaml";
};

TEST_F(KubernetesCommands, PodsTakeNoText) {
  const Ran ran = Weft("submit " + job_ +
                       " --dry-run --set data.format=text --set data.tokenizer=/data/model "
                       "--set data.train=/data/notes.jsonl");
  EXPECT_EQ(ran.exit_code, 2) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("data.train: is text, which pods do not tokenise; make files of "
                                 "tokens on their volume with weft data prepare"));
}

// Epochs that are not counted here would be steps in the pods' job that nobody wrote.
TEST_F(KubernetesCommands, PodsTakeNoEpochs) {
  const Ran ran =
      Weft("submit " + job_ + " --dry-run --set training.steps=null --set training.epochs=2");
  EXPECT_EQ(ran.exit_code, 2) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("training.epochs: the data is on the pods' volume and is not "
                                 "counted here; write training.steps in its place"));
  EXPECT_THAT(ran.out, Not(HasSubstr("steps: 1000")));
}

TEST_F(KubernetesCommands, StopDeletesTheJobAndWaits) {
  PlayKubectl("exit 0");
  const Ran ran = Weft("stop " + job_);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "stopped; weft submit resumes from its last checkpoint\n");
  EXPECT_EQ(Asked(), "delete job tiny-1 --cascade=foreground\n");
}

TEST_F(KubernetesCommands, StopNowLeavesPodsNoTime) {
  WriteJob(", namespace: lab, jobset: true");
  PlayKubectl("exit 0");
  const Ran ran = Weft("stop " + job_ + " --now");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "stopped\n");
  EXPECT_EQ(Asked(),
            "--namespace=lab delete jobset tiny-1 --wait=false\n"
            "--namespace=lab delete pods --selector=app.kubernetes.io/instance=tiny-1 --now\n");
}

TEST_F(KubernetesCommands, StopSaysWhatKubernetesSays) {
  PlayKubectl("echo 'Error from server (NotFound): jobs.batch \"tiny-1\" not found' >&2; exit 1");
  Ran ran = Weft("stop " + job_);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "Kubernetes has no job tiny-1\n");
  PlayKubectl("echo 'The connection to the server localhost:8080 was refused' >&2; exit 1");
  ran = Weft("stop " + job_);
  EXPECT_EQ(ran.exit_code, 75) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no Kubernetes answers where kubectl looks for one"));
  std::filesystem::remove(bin_ + "/kubectl");
  ran = Weft("stop " + job_);
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("kubectl is not in PATH"));
}

TEST_F(KubernetesCommands, LogsPrintTheFirstPods) {
  PlayKubectl("echo 'step 10/60'; exit 0");
  Ran ran = Weft("logs " + job_);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "step 10/60\n");
  const std::string pod =
      "logs --selector=app.kubernetes.io/instance=tiny-1,"
      "batch.kubernetes.io/job-completion-index=0 ";
  EXPECT_EQ(Asked(), pod + "--tail=-1\n");
  std::filesystem::remove(asked_);
  ran = Weft("logs " + job_ + " -f --tail 20 --since 10m");
  EXPECT_EQ(Asked(), pod + "--tail=20 --since=10m --follow\n");
  std::filesystem::remove(asked_);
  ran = Weft("logs " + job_ + " --since 2026-11-24T20:00:00Z");
  EXPECT_EQ(Asked(), pod + "--tail=-1 --since-time=2026-11-24T20:00:00Z\n");
}

TEST_F(KubernetesCommands, LogsRefuseWhatPodsDoNotHave) {
  PlayKubectl("exit 0");
  for (const char* const option : {"--rank 0", "--generation 2", "--json"}) {
    const Ran ran = Weft("logs " + job_ + " " + option);
    EXPECT_EQ(ran.exit_code, 2) << option;
    EXPECT_THAT(ran.err, HasSubstr("is for jobs of a weftd, as job-17")) << option;
  }
  const Ran none = Weft("logs " + folder_.path() + "/other.yaml");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("is no job; use job-17, as weft ps lists them"));
  EXPECT_EQ(Asked(), "");
}

TEST_F(KubernetesCommands, SayWhatIsWrongWithAFile) {
  PlayKubectl("exit 0");
  std::ofstream(job_) << "job: {name: tiny, colour: red}\n";
  for (const char* const verb : {"stop ", "logs "}) {
    const Ran ran = Weft(verb + job_);
    EXPECT_EQ(ran.exit_code, 2) << verb;
    EXPECT_THAT(ran.err, HasSubstr("job.colour")) << verb;
  }
  EXPECT_EQ(Asked(), "");
}

}  // namespace
}  // namespace weft
