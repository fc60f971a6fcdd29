// Streams that are lazy: which of them runs next.
#include "tests/gpu/emulation/streams.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace weft::emulation {
namespace {

constexpr int64_t kLongMs = 50;  // that a host waits for something else than its device

struct Chosen {
  StreamOrder order = StreamOrder::kAtOnce;
  uint64_t seed = 0;
};

Chosen FromEnvironment() {
  const char* const text = std::getenv("WEFT_EMULATED_STREAMS");
  const std::string value = text == nullptr ? "" : text;
  if (value.empty()) return {};
  if (value == "lazy") return {StreamOrder::kLazy};
  if (value == "others_first") return {StreamOrder::kOthersFirst};
  if (value.rfind("random:", 0) == 0) {
    return {StreamOrder::kRandom, std::strtoull(value.c_str() + 7, nullptr, 10)};
  }
  std::fprintf(stderr, "WEFT_EMULATED_STREAMS: unknown value %s\n", text);
  std::abort();
}

struct Devices {
  std::mutex mutex;  // guards the others
  Chosen chosen = FromEnvironment();
  std::map<int, std::unique_ptr<LazyDevice>> lazy;
};

Devices& AllDevices() {
  static auto* const devices = new Devices;
  return *devices;
}

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t Next(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

bool StepOthers(cudaStream* stream) {
  for (cudaStream* other : stream->lazy->streams) {
    if (other != stream && RunOldest(other)) return true;
  }
  return false;
}

// Only what `stream` has to wait for runs before it. A collective may wait for one
// that was launched before it on another stream, which no event shows.
bool StepLazily(cudaStream* stream) {
  if (RunOldest(stream)) return true;
  cudaStream* const needs = stream->queue.empty() ? nullptr : stream->queue.front().needs;
  return needs != nullptr ? StepLazily(needs) : StepOthers(stream);
}

bool StepAny(LazyDevice* lazy) {
  const size_t count = lazy->streams.size();
  const size_t first = static_cast<size_t>(Next(&lazy->random) % count);
  for (size_t i = 0; i < count; ++i) {
    if (RunOldest(lazy->streams[(first + i) % count])) return true;
  }
  return false;
}

StreamOrder CurrentStreamOrder() {
  Devices& devices = AllDevices();
  const std::lock_guard<std::mutex> lock(devices.mutex);
  return devices.chosen.order;
}

// Runs a piece of work of the stream's device, by the order; returns whether one could run.
bool Step(cudaStream* stream) {
  const std::lock_guard<std::recursive_mutex> lock(stream->lazy->mutex);
  switch (CurrentStreamOrder()) {
    case StreamOrder::kAtOnce:
    case StreamOrder::kLazy:
      return StepLazily(stream);
    case StreamOrder::kOthersFirst:
      return StepOthers(stream) || RunOldest(stream);
    case StreamOrder::kRandom:
      return StepAny(stream->lazy);
  }
  return false;
}

}  // namespace

void SetStreamOrder(StreamOrder order, uint64_t seed) {
  Devices& devices = AllDevices();
  const std::lock_guard<std::mutex> lock(devices.mutex);
  devices.chosen = {order, seed};
}

LazyDevice* AddStream(cudaStream* stream) {
  Devices& devices = AllDevices();
  const std::lock_guard<std::mutex> lock(devices.mutex);
  if (devices.chosen.order == StreamOrder::kAtOnce) return nullptr;
  std::unique_ptr<LazyDevice>& lazy = devices.lazy[stream->device];
  if (lazy == nullptr) lazy = std::make_unique<LazyDevice>();
  const std::lock_guard<std::recursive_mutex> of_device(lazy->mutex);
  if (lazy->streams.empty()) {
    lazy->random = devices.chosen.seed + static_cast<uint64_t>(stream->device);
  }
  lazy->last_step_ms = NowMs();
  lazy->streams.push_back(stream);
  return lazy.get();
}

void RemoveStream(cudaStream* stream) {
  if (stream->lazy == nullptr) return;
  const std::lock_guard<std::recursive_mutex> lock(stream->lazy->mutex);
  std::erase(stream->lazy->streams, stream);
}

void RunUntil(cudaStream* stream, int64_t count) {
  constexpr int64_t kMostMs = 60'000;
  const int64_t begin = NowMs();
  while (stream->progress->done < count) {
    if (Step(stream)) continue;
    Nap();
    if (NowMs() - begin < kMostMs) continue;
    std::fprintf(stderr, "emulated device: the host waits for work that is never done\n");
    std::abort();
  }
}

void Poll(cudaStream* stream) {
  LazyDevice& lazy = *stream->lazy;
  const bool is_onlooker = [&] {
    const std::lock_guard<std::recursive_mutex> lock(lazy.mutex);
    return stream->host != std::this_thread::get_id();
  }();
  if (is_onlooker && NowMs() - lazy.last_step_ms < kLongMs) return;
  Step(stream);
}

void RunAll(int of_device) {
  LazyDevice* lazy = nullptr;
  {
    Devices& devices = AllDevices();
    const std::lock_guard<std::mutex> lock(devices.mutex);
    const auto found = devices.lazy.find(of_device);
    if (found == devices.lazy.end()) return;
    lazy = found->second.get();
  }
  std::vector<cudaStream*> streams;
  {
    const std::lock_guard<std::recursive_mutex> lock(lazy->mutex);
    streams = lazy->streams;
  }
  for (cudaStream* stream : streams) RunUntil(stream, stream->queued);
}

}  // namespace weft::emulation
