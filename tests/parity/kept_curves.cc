#include "tests/parity/kept_curves.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"
#include "tests/parity/training.h"
#include "tests/places.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string Program() {
  return BinaryPath("/bin/weft_parity_rank");
}
std::string Backend() {
  return BinaryPath("/bin/libweft_cpu.so");
}
std::string Folder() {
  return BinaryPath("/curves");
}
// Builds whose curves stay: this one's under each set of OpenBLAS's kernels, and the one before.
constexpr size_t kIdentitiesKept = 8;
constexpr std::chrono::seconds kLongestTraining{170};
constexpr size_t kHashLength = 32;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Paths, sizes and times of the libraries that the programs load: these are installed files.
std::string Libraries() {
  const std::string command = absl::StrCat("ldd ", Program(), " ", Backend());
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const char* const arrow = std::strstr(line, "=> /");
    if (arrow == nullptr) continue;
    const std::string path(arrow + 3, std::strcspn(arrow + 3, " \n"));
    struct stat found = {};
    if (stat(path.c_str(), &found) != 0) continue;
    absl::StrAppend(&text, path, " ", found.st_size, " ", found.st_mtim.tv_sec, ".",
                    found.st_mtim.tv_nsec, "\n");
  }
  pclose(pipe);
  return text;
}

// Returns what /proc/cpuinfo says of the first processor, but for what changes from moment to
// moment.
std::string Processor() {
  std::istringstream file(ReadFile("/proc/cpuinfo"));
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const bool decides = line.starts_with("model") || line.starts_with("cpu family") ||
                         line.starts_with("stepping") || line.starts_with("cache size") ||
                         line.starts_with("flags");
    if (decides) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// The hash of everything but the job.
std::string Identity() {
  static const auto* const identity = [] {
    const char* const kernels = std::getenv("OPENBLAS_CORETYPE");
    return new std::string(HashBytes(absl::StrCat(
        HashFile(Program()).value_or("no program"), HashFile(Backend()).value_or("no backend"),
        Libraries(), Processor(), kernels == nullptr ? "" : kernels)));
  }();
  return *identity;
}

// Removes the curves of builds that are long gone.
void ForgetOldIdentities() {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> folders;
  std::error_code error;  // somebody else removes them, too
  for (const auto& entry : std::filesystem::directory_iterator(Folder(), error)) {
    folders.emplace_back(entry.last_write_time(error), entry.path());
  }
  std::sort(folders.rbegin(), folders.rend());
  for (size_t i = kIdentitiesKept; i < folders.size(); ++i) {
    std::filesystem::remove_all(folders[i].second, error);
  }
}

std::string PathOf(const ParityJob& parity) {
  std::string decides = ParityJobText(parity);
  for (const DataSource& source : parity.job.data.train) {
    absl::StrAppend(&decides, HashFile(source.path).value_or("no data"));
  }
  const std::string folder = absl::StrCat(Folder(), "/", Identity());
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) ForgetOldIdentities();
  return absl::StrCat(folder, "/", HashBytes(decides));
}

// Holds a file's lock, or gives up where nobody could need it for so long.
class Lock {
 public:
  explicit Lock(const std::string& path) : file_(open(path.c_str(), O_CREAT | O_RDWR, 0666)) {
    const auto end = std::chrono::steady_clock::now() + kLongestTraining;
    while (flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int file_;
};

// Renamed into place, so that nobody reads half of it.
void Keep(const std::string& path, const Curve& curve) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  std::ofstream(temporary, std::ios::binary) << CurveText(curve);
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
}

}  // namespace

std::string CurveText(const Curve& curve) {
  Json json = {{"losses", curve.losses},
               {"grad_norms", curve.grad_norms},
               {"loss_hex", curve.loss_hex},
               {"shard_hashes", curve.shard_hashes},
               {"gradients", Json::object()}};
  for (const auto& [name, values] : curve.gradients) {
    const std::vector<float> narrow(values.begin(), values.end());  // ranks have floats
    const auto* const bytes = reinterpret_cast<const uint8_t*>(narrow.data());
    json["gradients"][name] =
        Json::binary(std::vector<uint8_t>(bytes, bytes + narrow.size() * sizeof(float)));
  }
  std::string text;
  Json::to_cbor(json, text);
  return HashBytes(text) + text;
}

std::optional<Curve> ReadCurve(const std::string& text) {
  if (text.size() < kHashLength) return std::nullopt;
  const std::string body = text.substr(kHashLength);
  if (HashBytes(body) != text.substr(0, kHashLength)) return std::nullopt;
  const Json json = Json::from_cbor(body, /*strict=*/true, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  Curve curve;
  curve.losses = json.at("losses").get<std::vector<double>>();
  curve.grad_norms = json.at("grad_norms").get<std::vector<double>>();
  curve.loss_hex = json.at("loss_hex").get<std::vector<std::string>>();
  curve.shard_hashes = json.at("shard_hashes").get<std::vector<std::string>>();
  for (const auto& [name, values] : json.at("gradients").items()) {
    const auto& bytes = values.get_binary();
    std::vector<float> narrow(bytes.size() / sizeof(float));
    std::memcpy(narrow.data(), bytes.data(), bytes.size());
    curve.gradients[name].assign(narrow.begin(), narrow.end());
  }
  return curve;
}

absl::StatusOr<Curve> KeptCurve(const ParityJob& parity) {
  const std::string path = PathOf(parity);
  const Lock lock(path + ".lock");
  std::optional<Curve> kept = ReadCurve(ReadFile(path));
  if (kept.has_value()) return *std::move(kept);
  ASSIGN_OR_RETURN(Curve trained, Train(parity));
  Keep(path, trained);
  return trained;
}

absl::StatusOr<Curve> FreshCurve(const ParityJob& parity) {
  CHECK(!parity.counts_allocations);  // what a process holds is not the same twice
  ASSIGN_OR_RETURN(Curve trained, Train(parity));
  if (parity.bug != PlantedBug::kNone) return trained;  // no two comparisons want the same
  const std::string path = PathOf(parity);
  if (!std::filesystem::exists(path)) Keep(path, trained);
  return trained;
}

}  // namespace weft
