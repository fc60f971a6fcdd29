// WeftdProcess: a real weftd that a bench starts and measures from outside: its processor time and
// its memory, as /proc says. It dies with the bench.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

class WeftdProcess final {
 public:
  // Starts `program` with `--socket` in `folder` and `arguments`; its log is weftd.log there.
  WeftdProcess(const std::string& program, const std::string& folder,
               const std::vector<std::string>& arguments);
  ~WeftdProcess();  // kill -9
  WeftdProcess(const WeftdProcess&) = delete;
  WeftdProcess& operator=(const WeftdProcess&) = delete;

  // Returns the address that OpenChannel takes.
  std::string Target() const { return "unix:" + folder_ + "/weftd.sock"; }
  int64_t ResidentBytes() const;
  double CpuSeconds() const;

 private:
  const std::string folder_;
  pid_t pid_ = -1;
};

// The folder of a bench's own, removed with what is in it at the end.
class BenchFolder final {
 public:
  // Under `parent`. Unavailable: it cannot be made.
  static absl::StatusOr<std::unique_ptr<BenchFolder>> Make(const std::string& parent);
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit BenchFolder(std::string path);
  const std::string path_;
};

// Lets this process have as many open files as the system allows.
void AllowManyFiles();

}  // namespace weft
