// Training steps of a GPT-2 124M shape through the trainer and the CPU backend, in one process:
// 4 sequences of 256 random tokens, AdamW, clipping. bench/train_peers.py runs it beside PyTorch.
//
// build/release/bin/train_bench [--dtype bf16] [--threads N] [--steps N] [--profile]
// prints the median step, tokens/s, and where the time went (--profile: clocks around every
// operation). With --serve it prints "ready weft" after the warm-up and answers each line N of
// standard input with the seconds of N steps.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "bench/timed_device.h"
#include "plan/errors.h"
#include "worker/backend/loader.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

struct Options {
  std::string dtype = "fp32";
  int threads = 2;
  int steps = 5;
  int warmup = 2;
  int64_t batch = 4;
  int64_t seq_len = 256;
  int64_t blocks = 12;
  int64_t width = 768;
  int64_t vocab_size = 50257;
  bool profile = false;
  bool serve = false;
};

// Removed with all that is in it.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/weft-train-XXXXXX";
    if (mkdtemp(path) == nullptr) std::abort();
    path_ = path;
  }
  ~Folder() { Remove(); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  void Remove() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

void WriteRandomTokens(const std::string& path, const Options& options) {
  std::minstd_rand generator(1);
  std::ofstream file(path, std::ios::binary);
  for (int64_t i = 0; i < 8 * options.batch * options.seq_len + 1; ++i) {
    const auto id = static_cast<uint32_t>(generator() % static_cast<uint32_t>(options.vocab_size));
    file.write(reinterpret_cast<const char*>(&id), sizeof(id));
  }
}

Assignment AssignmentOf(const Options& options, const std::string& folder) {
  Assignment assignment;
  JobSpec& job = assignment.job;
  job.name = "bench";
  job.output_dir = folder;
  job.model = {.vocab_size = options.vocab_size,
               .hidden_size = options.width,
               .num_blocks = options.blocks,
               .num_heads = options.width / 64,
               .num_kv_heads = options.width / 64,
               .head_dim = 64,
               .ffn_size = 4 * options.width,
               .max_positions = options.seq_len};
  SetArchitecture(Architecture::kGpt2, job.model);
  job.data.format = TokenFormat::kNanogpt;
  job.data.dtype = TokenDtype::kUint32;
  job.data.train = {{folder + "/tokens.bin"}};
  job.training.seq_len = options.seq_len;
  job.training.global_batch_size = options.batch;
  job.training.steps = int64_t{1} << 40;
  job.training.mixed_precision = options.dtype == "bf16" ? Precision::kBf16 : Precision::kFp32;
  job.threads_per_worker = options.threads;  // attention's scratch is planned for as many
  job.lr_scheduler.type = LrSchedule::kConstant;
  job.cluster.name = "bench";
  job.cluster.slots_per_node = 1;
  job.cluster.device = {.name = "cpu",
                        .memory_bytes = int64_t{16} << 30,
                        .peak_flops_per_s = {.fp32 = 1e11, .bf16 = 1e11},
                        .peak_memory_bytes_per_s = 1e10};
  job.cluster.intra_node = {.latency_s = 1e-6, .bytes_per_s = 1e9};
  job.cluster.inter_node = job.cluster.intra_node;
  assignment.layout = {.dp = 1,
                       .pp = 1,
                       .tp = 1,
                       .pp_schedule = ScheduleKind::kOneForwardOneBackward,
                       .micro_batch_size = options.batch,
                       .gradient_accumulation_steps = 1};
  assignment.run_folder = folder;
  return assignment;
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Listens to the steps, and ends the process after the last that is wanted: the trainer would go on
// to write a checkpoint of all its state.
class Watch {
 public:
  Watch(const Options& options, TimedDevice* timed, Folder& folder)
      : options_(options), timed_(timed), folder_(folder) {}

  void StepDone(const StepReport& report) {
    if (report.step > options_.warmup) times_s_.push_back(report.step_s);
    if (report.step < options_.warmup) return;
    if (report.step == options_.warmup) {
      if (timed_ != nullptr) timed_->Clear();
      cpu_s_ = CpuSeconds();
      if (options_.serve) std::printf("ready weft\n");
    }
    if (options_.serve) {
      if (static_cast<int>(times_s_.size()) == wanted_) Answer();
    } else if (static_cast<int>(times_s_.size()) == options_.steps) {
      Print(report);
      End();
    }
  }

 private:
  [[noreturn]] void End() {
    folder_.Remove();
    std::fflush(stdout);
    std::_Exit(0);
  }

  void Answer() {
    for (const double time_s : times_s_) std::printf("%.4f ", time_s);
    if (!times_s_.empty()) std::printf("\n");
    std::fflush(stdout);
    times_s_.clear();
    if (!(std::cin >> wanted_) || wanted_ < 1) End();
  }

  void Print(const StepReport& report) {
    const double cpu_s = (CpuSeconds() - cpu_s_) / options_.steps;
    std::sort(times_s_.begin(), times_s_.end());
    const double median_s = times_s_[times_s_.size() / 2];
    std::printf(
        "%s, %d threads: median step %.3f s (%.3f to %.3f), %.1f tokens/s, %.3f CPU-s a step, "
        "loss %.4f\n",
        options_.dtype.c_str(), options_.threads, median_s, times_s_.front(), times_s_.back(),
        static_cast<double>(report.tokens) / median_s, cpu_s, report.loss);
    if (timed_ == nullptr) return;
    PrintShares();
  }

  void PrintShares() const {
    double rest_s = 0;
    for (const double time_s : times_s_) rest_s += time_s;
    const double all_s = rest_s;
    std::vector<std::pair<double, std::string>> lines;
    for (const auto& [kind, spent] : timed_->spent()) {
      rest_s -= spent.wall_s;
      lines.emplace_back(spent.wall_s,
                         absl::StrCat(kind, ", ", 1000 * spent.cpu_s / options_.steps, " CPU-ms"));
    }
    lines.emplace_back(rest_s, "everything else");
    std::sort(lines.rbegin(), lines.rend());
    for (const auto& [seconds, text] : lines) {
      std::printf("%5.1f %%  %8.2f ms  %s\n", 100 * seconds / all_s,
                  1000 * seconds / options_.steps, text.c_str());
    }
  }

  const Options& options_;
  TimedDevice* const timed_;  // null: no profile
  Folder& folder_;
  std::vector<double> times_s_;
  double cpu_s_ = 0;
  int wanted_ = 0;
};

absl::Status Run(const Options& options) {
  Folder folder;
  WriteRandomTokens(folder.path() + "/tokens.bin", options);
  ASSIGN_OR_RETURN(const BackendApi* const api, LoadBackend(BackendKind::kCpu));
  const DeviceOptions device_options{.threads = options.threads};
  Device* device = nullptr;
  RETURN_IF_ERROR(ToStatus(api->open_device(&device_options, &device)));
  const CommOptions comm_options;
  Comm* comm = nullptr;
  RETURN_IF_ERROR(ToStatus(api->open_comm(&comm_options, &comm)));
  std::unique_ptr<TimedDevice> timed;
  if (options.profile) timed = std::make_unique<TimedDevice>(*device, options.vocab_size);
  Watch watch(options, timed.get(), folder);
  Device& used = timed != nullptr ? *timed : *device;
  RunHooks hooks;
  hooks.step_done = [&](const StepReport& report) { watch.StepDone(report); };
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      Trainer::Create(AssignmentOf(options, folder.path()), /*rank=*/0, used, *comm, hooks));
  return trainer->Run().status();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  CLI::App app("training steps of a GPT-2 124M shape on the CPU backend");
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--steps", options.steps, "timed ones")->check(CLI::Range(1, 10000));
  app.add_option("--warmup", options.warmup, "steps before them")->check(CLI::Range(1, 10000));
  app.add_option("--batch", options.batch, "sequences per step");
  app.add_option("--seq-len", options.seq_len);
  app.add_option("--blocks", options.blocks);
  app.add_option("--width", options.width, "a multiple of 64");
  app.add_option("--vocabulary", options.vocab_size, "below 65536");
  app.add_flag("--profile", options.profile, "print the share of each operation");
  app.add_flag("--serve", options.serve, "answer lines of standard input");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = weft::Run(options);
  std::fprintf(stderr, "train_bench: %s\n", status.ToString().c_str());
  return 1;
}
