#include "tests/slurm/slurm_run.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/end_to_end/lacking.h"
#include "tests/end_to_end/tiny_model.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr double kNear = 1e-5;

}  // namespace

void SlurmRun::SetUp() {
  END_FOR_WANT_OF(SlurmBed::Missing());
  bed_ = Bed::OfProcess().Take(MoreOfSlurm());
}

void SlurmRun::TearDown() {
  if (bed_ == nullptr) return;
  bed_->hosts().Run(SlurmBed::kHead, "scancel --user=root --state=PENDING; scancel --user=root");
  bed_->ExpectNothingLeft();
  if (HasFailure()) std::fputs((Words() + bed_->Logs()).c_str(), stderr);
  Bed::OfProcess().GiveBack();
}

std::string SlurmRun::folder(const std::string& name) const {
  return bed_->shared() + "/" + name;
}

std::string SlurmRun::WriteJob(const SlurmJobWords& words) {
  const std::string path = bed_->shared() + "/" + words.name + ".yaml";
  std::ofstream(path) << "job: {name: " << words.name << ", output_dir: " << bed_->shared() << "}\n"
                      << kTinyModel << "training: {seq_len: " << kTinySeqLen
                      << ", global_batch_size: 24, micro_batch_size: 2, steps: " << words.steps
                      << ", seed: 42}\n"
                      << "optimizer: {name: adamw, lr: 1.0e-3}\nlr_scheduler: {type: constant}\n"
                      << "parallelism: {" << words.parallelism << "}\n"
                      << "checkpoint: {interval: " << words.save_every << ", keep_latest_k: 3}\n"
                      << words.more << "cluster: {profile: cpu, network: " << HostBed::kNetwork
                      << ", " << words.cluster << "}\n";
  return path;
}

HostBed::Answer SlurmRun::Weft(const std::string& arguments) {
  return bed_->hosts().Run(SlurmBed::kHead, BinaryPath("/bin/weft") + " " + arguments);
}

std::string SlurmRun::Submit(const std::string& job, const std::string& options) {
  const HostBed::Answer answer = Weft("submit " + job + " " + options);
  EXPECT_EQ(answer.exit_code, 0) << answer.out << answer.err;
  const size_t at = answer.out.find("slurm job ");
  EXPECT_NE(at, std::string::npos) << answer.out << answer.err;
  if (at == std::string::npos) return "";
  return std::to_string(std::atoi(answer.out.c_str() + at + 10));
}

void SlurmRun::AwaitCompleted(const std::string& job, double timeout_s) {
  const std::string state =
      bed_->AwaitState(job, {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}, timeout_s);
  EXPECT_EQ(state, "COMPLETED");
}

// No connection of the node's is closed: nobody is there to do so.
void SlurmRun::LoseNode(int node) {
  bed_->hosts().CutLink(node);
  bed_->KillNode(node);
  bed_->Head("scontrol update nodename=" + HostBed::Name(node) + " state=down reason=lost");
}

void SlurmRun::BringBackNode(int node) {
  bed_->hosts().RestoreLink(node);
  bed_->StartNode(node);
  bed_->Head("scontrol update nodename=" + HostBed::Name(node) + " state=resume");
}

void SlurmRun::LetGoOn(const std::string& job) {
  EXPECT_EQ(bed_->AwaitState(job, {"PENDING"}, kPatienceS), "PENDING");
  // Slurm sets the start anew, two minutes away, once the nodes have cleaned up behind the run
  // before; and nodes refuse a run of the second in which they ended the last. So it is asked, with
  // two seconds to spare, until the next run has said something.
  const std::string log = folder() + "/logs/slurm-" + job + ".log";
  const size_t said = ReadText(log).size();
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    bed_->hosts().Run(SlurmBed::kHead, "scontrol update jobid=" + job + " starttime=now+2");
    return Eventually(4, [&] { return ReadText(log).size() > said; });
  })) << bed_->Head("scontrol show job " + job);
}

bool SlurmRun::WaitForStep(int64_t step, const std::string& name, double timeout_s) const {
  return Eventually(timeout_s, [&] {
    SleepSeconds(0.02);
    return LastStep(name) >= step;
  });
}

int64_t SlurmRun::LastStep(const std::string& name) const {
  const std::vector<StepMetrics> steps = Steps(name);
  return steps.empty() ? 0 : steps.back().step;
}

int64_t SlurmRun::LastGeneration() const {
  const std::vector<StepMetrics> steps = Steps();
  return steps.empty() ? 0 : steps.back().generation;
}

std::map<int64_t, std::string> SlurmRun::Curve(const std::string& name) const {
  std::map<int64_t, std::string> curve;
  for (const StepMetrics& step : Steps(name)) {
    const auto [place, is_new] = curve.try_emplace(step.step, step.loss_hex);
    EXPECT_EQ(place->second, step.loss_hex) << "step " << step.step << ", done again";
  }
  return curve;
}

std::map<int64_t, std::string> SlurmRun::LocalCurve(SlurmJobWords words) {
  static auto* const trained = new std::map<std::string, std::map<int64_t, std::string>>;
  std::map<int64_t, std::string>& curve =
      (*trained)[words.parallelism + " for " + std::to_string(words.steps)];
  if (static_cast<int64_t>(curve.size()) == words.steps) return curve;
  words.name = "local";
  words.cluster = "slots: 6";
  const std::unique_ptr<Child> run =
      bed_->hosts().Start(SlurmBed::kHead, {BinaryPath("/bin/weft"), "run", WriteJob(words)},
                          {{kPauseVariable, kNoPace}});
  const std::optional<Ended> ended = run->Wait(90 + 0.1 * static_cast<double>(words.steps));
  EXPECT_TRUE(ended && ended->exit_code == 0) << run->Stdout() << run->Stderr();
  curve = Curve("local");
  EXPECT_EQ(curve.size(), static_cast<size_t>(words.steps));
  std::filesystem::remove_all(folder("local"));
  return curve;
}

void SlurmRun::ExpectNear(const std::map<int64_t, std::string>& curve) const {
  for (const StepMetrics& step : Steps()) {
    const auto found = curve.find(step.step);
    if (found == curve.end()) continue;
    const double expected = std::strtod(found->second.c_str(), nullptr);
    EXPECT_LE(std::abs(step.loss - expected), kNear * expected) << "step " << step.step;
  }
}

std::string SlurmRun::Words(const std::string& name) const {
  std::string text;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder(name) + "/logs", error)) {
    if (!entry.is_regular_file()) continue;
    const std::string said = ReadText(entry.path());
    text += "-- " + entry.path().filename().string() + "\n" +
            said.substr(said.size() > 3000 ? said.size() - 3000 : 0) + "\n";
  }
  return text;
}

}  // namespace weft
