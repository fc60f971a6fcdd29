#include "tests/parity/training.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "nlohmann/json.hpp"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/shards/shard.h"
#include "tests/places.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr char kPython[] = "/usr/bin/python3";  // Debian's, which has Debian's NumPy

// A folder that goes with the object; short, because Open MPI puts sockets below it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/weft-parity-XXXXXX";
    CHECK(mkdtemp(pattern) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

// Runs `command` for at most `most_s` seconds, with its output in the error.
absl::Status RunCommand(const TemporaryFolder& folder, const std::string& command, int most_s) {
  const std::string line =
      absl::StrCat("OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TMPDIR=", folder.path(),
                   " timeout -k 2 ", most_s, " ", command, " >", folder.path(), "/output 2>&1");
  const int status = std::system(line.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(command, ": exit ", WEXITSTATUS(status), "\n", folder.Read("output")));
}

absl::Status ReadMetrics(const TemporaryFolder& folder, Curve& curve) {
  std::istringstream lines(folder.Read("metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::InternalError(absl::StrCat("metrics.jsonl: ", line));
    curve.loss_hex.push_back(json.at("loss_hex"));
    curve.losses.push_back(std::strtod(curve.loss_hex.back().c_str(), nullptr));
    const std::string norm = json.at("grad_norm_hex");
    curve.grad_norms.push_back(std::strtod(norm.c_str(), nullptr));
  }
  return absl::OkStatus();
}

// Ranks that hold the same box must hold the same bits: they will apply them to the same weights.
absl::Status CheckCopies(const std::string& folder, int world_size) {
  std::map<std::string, std::pair<std::vector<float>, int>> seen;
  for (int rank = 0; rank < world_size; ++rank) {
    ASSIGN_OR_RETURN(const auto file,
                     SafetensorsFile::Open(absl::StrCat(folder, "/", ShardFileName(rank))));
    for (const StoredTensor& tensor : file->tensors()) {
      std::vector<float> values(static_cast<size_t>((tensor.end - tensor.begin) / 4));
      file->Read(tensor, 0, std::ssize(values), values.data());
      const auto [first, is_new] = seen.try_emplace(tensor.name, values, rank);
      if (is_new || first->second.first == values) continue;
      return absl::DataLossError(absl::StrCat("gradient ", tensor.name, " of rank ", rank,
                                              " is not that of rank ", first->second.second));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadGradients(const TemporaryFolder& folder, const ParityJob& parity, Curve& curve) {
  const std::string gradients = folder.path() + "/gradients";
  Manifest manifest;
  for (int rank = 0; rank < parity.layout.world_size(); ++rank) {
    const std::string file = ShardFileName(rank);
    ASSIGN_OR_RETURN(const std::string hash, HashFile(absl::StrCat(gradients, "/", file)));
    manifest.shards.push_back({file, 0, hash});
  }
  if (parity.bug == PlantedBug::kNone) {
    RETURN_IF_ERROR(CheckCopies(gradients, parity.layout.world_size()));
  }
  ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(gradients, manifest));
  for (const TensorSpec& tensor : Tensors(parity.job.model)) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    const std::vector<int64_t> origin(tensor.dims.size(), 0);
    RETURN_IF_ERROR(
        reader.Read(tensor.name, tensor.dims, origin, tensor.dims, absl::MakeSpan(values)));
    curve.gradients[tensor.name].assign(values.begin(), values.end());
  }
  return absl::OkStatus();
}

// Returns what a shell is told to train the job of `folder`.
std::string CommandOf(const ParityJob& parity, const std::string& folder) {
  const std::string program = absl::StrCat(BinaryPath("/bin/weft_parity_rank"), " ", folder);
  if (parity.ranks == Ranks::kThreads) return program;
  const std::string preload =
      parity.counts_allocations
          ? absl::StrCat(" -x LD_PRELOAD=", BinaryPath("/bin/libweft_allocations.so"))
          : "";
  return absl::StrCat(
      "mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1",
      preload, " -n ", parity.layout.world_size(), " ", program);
}

}  // namespace

absl::StatusOr<Curve> Train(const ParityJob& parity) {
  CHECK(parity.ranks == Ranks::kProcesses || !parity.counts_allocations);
  const TemporaryFolder folder;
  folder.Write("job.json", ParityJobText(parity));
  RETURN_IF_ERROR(RunCommand(folder, CommandOf(parity, folder.path()), /*most_s=*/160));
  Curve curve;
  RETURN_IF_ERROR(ReadMetrics(folder, curve));
  RETURN_IF_ERROR(ReadGradients(folder, parity, curve));
  if (parity.counts_allocations) {
    ASSIGN_OR_RETURN(curve.memory, ReadMemoryTraces(folder.path(), parity.layout.world_size()));
  }
  ASSIGN_OR_RETURN(
      const Manifest manifest,
      VerifyCheckpoint(StepFolder(folder.path() + "/checkpoint", parity.job.training.steps)));
  for (const ShardRecord& shard : manifest.shards) curve.shard_hashes.push_back(shard.xxh3);
  return curve;
}

absl::StatusOr<Curve> TrainInNumpy(const JobSpec& job) {
  const TemporaryFolder folder;
  folder.Write("job.json", ParityJobText({.job = job, .layout = {}}));
  const std::string command =
      absl::StrCat(kPython, " -B ", SourcePath("/tests/reference/"),
                   job.model.learned_positions ? "gpt2" : "llama", "_reference.py ", folder.path(),
                   "/job.json ", folder.path(), "/witness");
  RETURN_IF_ERROR(RunCommand(folder, command, /*most_s=*/160));
  const Json json = Json::parse(folder.Read("witness.json"), nullptr, false);
  if (!json.is_object()) return absl::InternalError("witness.json is not JSON");
  Curve curve;
  curve.losses = json.at("losses").get<std::vector<double>>();
  curve.grad_norms = json.at("grad_norms").get<std::vector<double>>();
  const std::string bytes = folder.Read("witness.f64");
  size_t offset = 0;
  for (const Json& tensor : json.at("tensors")) {
    size_t elements = 1;
    for (const size_t dim : tensor.at("dims").get<std::vector<size_t>>()) elements *= dim;
    std::vector<double>& values = curve.gradients[tensor.at("name")];
    values.resize(elements);
    CHECK(offset + elements * sizeof(double) <= bytes.size());
    std::memcpy(values.data(), bytes.data() + offset, elements * sizeof(double));
    offset += elements * sizeof(double);
  }
  return curve;
}

absl::Status HasNumpy() {
  const std::string command = absl::StrCat(kPython, " -c 'import numpy, xxhash' 2>/dev/null");
  if (std::system(command.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kPython, " lacks a module; install python3-numpy and python3-xxhash"));
}

}  // namespace weft
