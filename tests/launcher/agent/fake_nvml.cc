// A library in NVML's place, as the driver of a host with three GPUs has it: the first is idle, on
// the second two processes hold memory, the third is lost. FAKE_NVML=old: of a driver before the
// functions that count the driver's share apart; FAKE_NVML=broken: it does not come up.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {
bool Is(const char* kind) {
  const char* const set = std::getenv("FAKE_NVML");
  return set != nullptr && std::strcmp(set, kind) == 0;
}
constexpr unsigned long long kMiB = 1 << 20;
constexpr unsigned long long kTotal = 81559 * kMiB;
constexpr unsigned long long kReserved = 551 * kMiB;
constexpr int kUninitialized = 1;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

bool open = false;
char devices[2];

unsigned long long UsedOf(const void* device) {
  return device == &devices[1] ? 20000 * kMiB : 0;
}
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (Is("broken")) return kNotSupported;
  open = true;
  return 0;
}
int nvmlShutdown() {
  if (!open) return kUninitialized;
  open = false;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  if (!open) return kUninitialized;
  const char* const known[] = {"0000:18:00.0", "0000:3b:00.0"};
  for (int i = 0; i < 2; ++i) {
    if (std::strcmp(address, known[i]) != 0) continue;
    *device = &devices[i];
    return 0;
  }
  return kNotFound;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* info) {  // total, free, used
  const unsigned long long used = UsedOf(device) + kReserved;
  info[0] = kTotal;
  info[1] = kTotal - used;
  info[2] = used;
  return 0;
}
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* info) {
  if (Is("old")) return kNotFound;
  if (info->version != (40u | (2u << 24))) return kNotSupported;
  info->total = kTotal;
  info->reserved = kReserved;
  info->used = UsedOf(device);
  info->free = kTotal - kReserved - info->used;
  return 0;
}
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu, compute;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned there = device == &devices[1] ? 20 : 0;  // more than a first question has room for
  if (*count < there) {
    *count = there;
    return kInsufficientSize;
  }
  for (unsigned i = 0; i < there; ++i) processes[i] = {0x7fffff00u + i, ~0ull, 0, 0};
  if (there > 0) processes[0] = {static_cast<unsigned>(getpid()), 18000 * kMiB, 0, 0};
  *count = there;
  return 0;
}
}
