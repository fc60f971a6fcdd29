// The pods of a manifest run on three hosts that stand for nodes: with the variables, the
// names and the files that Kubernetes would give, each as the first process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/hosts/hosts_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class PodsRun : public HostsRun {
 protected:
  static constexpr int kPods = 3;

  // weft submit, whose kubectl keeps what it is given; then the names of the headless service.
  void Submit(const std::string& more, int64_t steps) {
    const std::string bin = bed_->shared() + "/kube";
    std::filesystem::create_directories(bin);
    std::filesystem::copy_file("/usr/share/common-licenses/GPL-3", bed_->shared() + "/text",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(bin + "/kubectl") << "#!/bin/sh\ncat > " << bin << "/manifest.yaml\n";
    std::filesystem::permissions(bin + "/kubectl", std::filesystem::perms::owner_all);
    const std::string job = WriteJob(
        kFixed,
        absl::StrCat("slots: 2, nodes: 3, scheduler: kubernetes, image: weft, volume: data, "
                     "volume_path: ",
                     bed_->shared(), ", remote_path: ", BinaryPath("/bin")),
        more, steps);
    const HostBed::Answer answer =
        bed_->Run(1, absl::StrCat("PATH=", bin, ":$PATH ", BinaryPath("/bin/weft"), " submit ", job,
                                  " --set 'data.train=[{path: ", bed_->shared(), "/text}]'"));
    ASSERT_EQ(answer.exit_code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("kubernetes job tiny: 3 pods, dp=3 tp=1 pp=2"));
    const std::string manifest = ReadText(bin + "/manifest.yaml");
    std::filesystem::create_directories(Mounted() + "/job");
    std::filesystem::create_directories(Mounted() + "/tls");
    for (const char* name : {"pod.sh", "probe.sh", "job.yaml"}) Mount(manifest, "job", name);
    for (int pod = 0; pod < kPods; ++pod) {
      Mount(manifest, "tls", absl::StrCat("pod-", pod, ".pem"));
      bed_->Run(1, absl::StrCat("echo ", HostBed::Address(pod + 1), " tiny-", pod, " tiny-", pod,
                                ".tiny >> /etc/hosts"));
    }
  }

  std::string Mounted() const { return bed_->shared() + "/etc-weft"; }

  // Writes an entry of a ConfigMap or Secret where pods find it. All that differs from a pod is the
  // folder: /etc is this machine's.
  void Mount(const std::string& manifest, const std::string& volume, const std::string& name) {
    const std::string head = absl::StrCat("\n  ", name, ": |\n");
    const size_t begin = manifest.find(head);
    ASSERT_NE(begin, std::string::npos) << name;
    std::string text;
    for (absl::string_view line : absl::StrSplit(manifest.substr(begin + head.size()), '\n')) {
      if (!absl::ConsumePrefix(&line, "    ")) break;
      absl::StrAppend(&text, line, "\n");
    }
    std::ofstream(Mounted() + "/" + volume + "/" + name)
        << absl::StrReplaceAll(text, {{"/etc/weft", Mounted()}});
  }

  // The container's first process is pod.sh, as it is in a pod.
  std::unique_ptr<Child> StartPod(int pod) {
    return bed_->Start(
        pod + 1,
        {"/usr/bin/unshare", "-u", "-p", "--fork", "--kill-child=KILL", "--mount-proc", "/bin/sh",
         "-c", absl::StrCat("hostname tiny-", pod, "; exec /bin/sh ", Mounted(), "/job/pod.sh")},
        {{"JOB_COMPLETION_INDEX", std::to_string(pod)}});
  }

  HostBed::Answer Probe(int pod) {
    return bed_->Run(pod + 1, absl::StrCat("JOB_COMPLETION_INDEX=", pod, " /bin/sh ", Mounted(),
                                           "/job/probe.sh"));
  }

  // The kubelet sends the preStop hook's notice, then TERM.
  void Evict(int pod) {
    const std::string process =
        absl::StrCat("pgrep -f '^/[^ ]*/weft ", pod == 0 ? "run" : "agent --coordinator tiny", "'");
    EXPECT_TRUE(Eventually(120,
                           [&] {
                             SleepSeconds(0.1);
                             return bed_->Run(pod + 1, process).exit_code == 0;
                           }))
        << "pod " << pod << " does not run";
    // It may be gone before TERM comes.
    const HostBed::Answer sent =
        bed_->Run(pod + 1, absl::StrCat("pid=$(", process, "); kill -USR2 $pid && { sleep 0.2; ",
                                        "kill -TERM $pid 2>/dev/null; true; }"));
    EXPECT_EQ(sent.exit_code, 0) << sent.err;
  }

  void ExpectEnds(Child* pod, int code, double within_s) {
    const std::optional<Ended> ended = pod->Wait(within_s);
    ASSERT_TRUE(ended.has_value()) << pod->Stdout() << pod->Stderr() << Words();
    EXPECT_EQ(ended->exit_code, code) << pod->Stdout() << pod->Stderr();
  }

  // A pod's /tmp goes with it.
  void TearDown() override {
    if (bed_ == nullptr) return;
    for (int host = 1; host <= kPods; ++host) bed_->Run(host, "rm -f /tmp/weft.pem");
    HostsRun::TearDown();
  }
};

TEST_F(PodsRun, GiveTheVeryLossesOfOneHost) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  ASSERT_NO_FATAL_FAILURE(Submit(ShortTimes(), kSteps));
  EXPECT_NE(Probe(1).exit_code, 0) << "there is no agent yet";
  // Pods come in any order.
  std::vector<std::unique_ptr<Child>> pods(kPods);
  for (const int pod : {2, 0, 1}) pods[static_cast<size_t>(pod)] = StartPod(pod);
  run_.reset();
  ASSERT_TRUE(WaitForStep(2)) << pods[0]->Stdout() << pods[0]->Stderr() << Words();
  for (int pod = 0; pod < kPods; ++pod) EXPECT_EQ(Probe(pod).exit_code, 0) << Probe(pod).err;
  ExpectEnds(pods[0].get(), 0, 180);
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(LastGeneration(), 1) << Words();
  // The Job is over by its successPolicy: the others are ended.
  for (const int pod : {1, 2}) Evict(pod);
  for (const size_t pod : {1, 2}) ExpectEnds(pods[pod].get(), 75, 120);
}

TEST_F(PodsRun, GoOnWhereAnEvictedOneHasLeftThem) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  for (const int evicted : {2, 0}) {
    SCOPED_TRACE(evicted);
    ASSERT_NO_FATAL_FAILURE(Submit(ShortTimes(), kSteps));
    std::vector<std::unique_ptr<Child>> pods;
    for (int pod = 0; pod < kPods; ++pod) pods.push_back(StartPod(pod));
    ASSERT_TRUE(WaitForStep(13)) << pods[0]->Stdout() << pods[0]->Stderr() << Words();
    Evict(evicted);
    // Both are replaced, as 75 says; whoever else is there stays.
    ExpectEnds(pods[0].get(), 75, 120);
    if (evicted != 0) ExpectEnds(pods[static_cast<size_t>(evicted)].get(), 75, 120);
    if (evicted != 0) pods[static_cast<size_t>(evicted)] = StartPod(evicted);
    pods[0] = StartPod(0);
    ExpectEnds(pods[0].get(), 0, 180);
    EXPECT_EQ(Curve(), alone);
    for (const int pod : {1, 2}) Evict(pod);
    for (const size_t pod : {1, 2}) ExpectEnds(pods[pod].get(), 75, 120);
    std::filesystem::remove_all(folder());
  }
}

}  // namespace
}  // namespace weft
