// Manifests, letter by letter; validate.py beside this has Kubernetes' own schemas look at the same
// files.
#include "launcher/kubernetes/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "plan/search/search.h"
#include "tests/golden/golden.h"
#include "tests/launcher/submitted_jobs.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Spec {
  const char* name;
  const char* model;
  const char* cluster;  // beside what each has
};

const Spec kSpecs[] = {
    {"three_pods", kTiny, "profile: cpu, slots: 2, nodes: 3"},
    {"queue", kTiny,
     "profile: cpu, slots: 1, nodes: 2, spares: 1, queue: lab, namespace: training, time: "
     "'1:00:00', "
     "priority_class: low, node_selector: {pool: batch}, resources: {cpu: '4'}"},
    {"gpus", kLarge,
     "profile: h100x8, nodes: 2, runtime_class: nvidia, remote_path: /sw/weft/bin, "
     "resources: {rdma/ib: '1', cpu: '64'}"},
    {"jobset", kLarge, "profile: h100x8, nodes: 2, jobset: true, queue: lab"},
    {"passed_on", kTiny,
     "profile: cpu, slots: 2, nodes: 1, pod: {tolerations: [{key: lab/gpu, operator: Exists}], "
     "imagePullSecrets: [{name: registry}], affinity: {nodeAffinity: {"
     "preferredDuringSchedulingIgnoredDuringExecution: []}}, annotations: {inject: 'false'}, "
     "labels: {team: a}, fsGroup: 1000, ttlSecondsAfterFinished: 86400, ownerReferences: "
     "[{apiVersion: v1, kind: Pod, name: parent, uid: '12', controller: true}]}"},
};

absl::StatusOr<JobFile> FileOf(const std::string& model, const std::string& cluster) {
  const std::string yaml = "job: {name: tiny_1, output_dir: /data/runs}\n" + model +
                           "cluster: {scheduler: kubernetes, image: registry.example.org/weft:1, "
                           "volume: shared, volume_path: /data, " +
                           cluster + "}\n";
  return ReadJobText(yaml, SourcePath("/configs/jobs/job.yaml"), {.check_files = false});
}

TEST(Manifest, AsksForWhatTheJobNeeds) {
  for (const Spec& spec : kSpecs) {
    SCOPED_TRACE(spec.name);
    const auto file = FileOf(spec.model, spec.cluster);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto plan = FindPlan(file->job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::string text = PodsManifest(
        file->job, *plan,
        {.job_text = JobFileText(file->job), .run_folder = "/data/runs/tiny_1", .save_s = 4});
    ExpectGolden(std::string("kubernetes_") + spec.name + ".yaml", text);
  }
}

TEST(Manifest, RefusesFieldsThatWeftSaysItself) {
  EXPECT_THAT(
      std::string(
          FileOf(kTiny, "profile: cpu, slots: 2, pod: {containers: []}").status().message()),
      HasSubstr("cluster.pod.containers: is weft's own to say"));
  EXPECT_THAT(std::string(FileOf(kTiny, "profile: cpu, slots: 2, pod: [a]").status().message()),
              HasSubstr("cluster.pod: found a list of 1; expected a map"));
}

// The pods read the job that was asked for.
TEST(Manifest, HasTheJobInItWhole) {
  const auto file = FileOf(kLarge, "profile: h100x8, nodes: 2");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto again =
      ReadJobText(JobFileText(file->job), "/etc/weft/job/job.yaml", {.check_files = false});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job, file->job);
}

TEST(Manifest, NamesObjectsInLettersThatKubernetesTakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"tiny", "tiny"},
      {"GPT2_124m.a", "gpt2-124m-a"},
      {"7b", "weft-7b"},
      {"a-", "a"},
      {"___", "weft-job"},
      {"a123456789b123456789c123456789d123456789e", "a123456789b123456789c123456789d123456789"}};
  for (const auto& [name, object] : cases) EXPECT_EQ(ObjectName(name), object) << name;
}

TEST(Manifest, RefusesPathsThatPodsDoNotSee) {
  const auto file = FileOf(kTiny, "profile: cpu, slots: 2");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(CheckPodPaths(file->job).ok());
  JobSpec job = file->job;
  job.output_dir = "/datax/runs";
  EXPECT_THAT(std::string(CheckPodPaths(job).message()),
              HasSubstr("job.output_dir: /datax/runs is not on the pods' volume; name a path in "
                        "/data (cluster.volume_path)"));
  job = file->job;
  job.data.train[0].path = "/home/a";
  EXPECT_THAT(std::string(CheckPodPaths(job).message()), HasSubstr("data.train: /home/a is not"));
}

}  // namespace
}  // namespace weft
