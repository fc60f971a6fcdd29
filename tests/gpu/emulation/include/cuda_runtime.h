// Stands in for the toolkit's header of this name where kernels run on the CPU (threads.h): the
// words of the language as macros and functions, and the calls of the run time that the backend
// makes. There is one device for each host thread; a stream runs what it is given at once, but for
// a stream that is held (fake_nccl.cc), which stays busy until it is let go, and those that are
// lazy (streams.h). As with CUDA, memory is freed when no stream of its device is busy.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/streams.h"
#include "tests/gpu/emulation/threads.h"

// NOLINTBEGIN: names are the toolkit's.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx ::weft::emulation::thread_index
#define blockIdx ::weft::emulation::block_index
#define blockDim ::weft::emulation::block_size
#define gridDim ::weft::emulation::grid_size

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline void __syncthreads() {
  weft::emulation::WaitForBlock();
}
inline void __syncwarp() {
  weft::emulation::WaitForWarp();
}
template <typename T>
T __shfl_sync(unsigned /*mask*/, T value, int lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = weft::emulation::Exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return __shfl_sync(mask, value, weft::emulation::Lane() ^ lane_mask);
}
inline unsigned __ballot_sync(unsigned /*mask*/, int predicate) {
  return weft::emulation::Ballot(predicate != 0);
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline unsigned __float_as_uint(float x) {
  unsigned bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline float __fdividef(float x, float y) {
  return std::abs(y) > 0x1p126F ? 0.0F * x : x / y;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
using std::max;
using std::min;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorContained = 721,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotReady = 600,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorNotSupported = 801,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
struct cudaGraph {
  std::vector<std::function<void()>> work;
  bool cannot_be_instantiated = false;
};
using cudaGraph_t = cudaGraph*;
struct cudaGraphExec {
  // Shared with the launches that are queued: one may outlive the graph, as with CUDA.
  std::shared_ptr<const std::vector<std::function<void()>>> work;
};
using cudaGraphExec_t = cudaGraphExec*;
struct cudaStream {
  cudaStream();  // in memory.cc, which knows all
  ~cudaStream();
  cudaStream(const cudaStream&) = delete;
  cudaStream& operator=(const cudaStream&) = delete;

  const int device = weft::emulation::device;
  // Null: it runs everything at once, and the five below stay as they are.
  weft::emulation::LazyDevice* const lazy;
  std::deque<weft::emulation::StreamWork> queue;
  int64_t queued = 0;      // pieces of work, ever
  std::thread::id host;    // the thread that queued the last one
  bool is_polled = false;  // the host waits for it by asking again and again
  const std::shared_ptr<weft::emulation::StreamProgress> progress =
      std::make_shared<weft::emulation::StreamProgress>();

  std::atomic<int> holds = 0;
  // Its queue has no room behind what holds it: whoever asks something of it waits until it is let
  // go, as for the lock that CUDA holds meanwhile.
  std::atomic<bool> is_full = false;
  bool has_priority = false;
  // The rest belongs to the thread that queues. While a graph is captured:
  cudaGraph_t capture = nullptr;
  bool capture_is_void = false;  // a call that cannot be captured was made
  // Faults on demand, of every capture from now on.
  enum class Fault { kNone, kAtBegin, kOfAnOperation, kOfInstantiation } fault = Fault::kNone;
  int64_t host_calls = 0;  // that have queued work: of an operation, or a graph as a whole
  int64_t captures = 0;    // begun
  // Times that the host has waited for work that it had not waited for before.
  int64_t host_waits = 0;
  int64_t waited_calls = 0;  // of host_calls
};
struct cudaEvent {
  cudaStream* behind = nullptr;  // the stream that was held when this was recorded
  cudaStream* stream = nullptr;  // on which this was recorded
  int64_t calls = 0;             // of its host_calls, then
  std::shared_ptr<double> at_ms = std::make_shared<double>(0);
  cudaStream* captured_on = nullptr;
  // On a lazy stream it has passed once so many pieces of that one's work are done.
  std::shared_ptr<weft::emulation::StreamProgress> progress;
  int64_t passes_at = 0;

  bool has_passed() const { return progress == nullptr || progress->done >= passes_at; }
};
using cudaStream_t = cudaStream*;
using cudaEvent_t = cudaEvent*;
inline constexpr unsigned cudaStreamNonBlocking = 1;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major;
  int minor;
  int multiProcessorCount;
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};

inline const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaSuccess ? "no error" : "an emulated error";
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
// 0 is the thread's own, which has a number above it for other threads to say.
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device > weft::emulation::num_devices) return cudaErrorInvalidDevice;
  if (device > 0) weft::emulation::device = device;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = weft::emulation::device;
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int device) {
  *value = weft::emulation::shared_bytes_of_a_block;
  return device >= 0 && device <= weft::emulation::num_devices ? cudaSuccess
                                                               : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);  // in memory.cc
// All processes share the device, unless WEFT_EMULATED_DEVICES=own.
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device);
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);  // of this process alone
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
template <typename T>
cudaError_t cudaMalloc(T** data, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
inline cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return cudaMalloc(data, bytes);
}
inline cudaError_t cudaFreeHost(void* data) {
  return cudaFree(data);
}
namespace weft::emulation {

// Holds, for this host thread, the stream on which it captures, in thread-local mode; or null.
inline thread_local cudaStream_t capturing_stream = nullptr;

// Whether a graph is captured on `stream` (or none), which the call at hand makes void.
inline bool VoidsCapture(cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) return false;
  stream->capture_is_void = true;
  return true;
}

inline void Append(cudaStream_t stream, StreamWork work) {
  const std::lock_guard<std::recursive_mutex> lock(stream->lazy->mutex);
  stream->queue.push_back(std::move(work));
  stream->host = std::this_thread::get_id();
  ++stream->queued;
}

// The oldest work of a lazy stream; returns whether it is over. REQUIRES: its device's lock.
inline bool RunOldest(cudaStream_t stream) {
  if (stream->queue.empty() || !stream->queue.front().run()) return false;
  stream->queue.pop_front();
  ++stream->progress->done;
  stream->lazy->last_step_ms = NowMs();
  return true;
}

// Queues a piece of work: it is done at once, kept by a lazy stream, or by the capture.
template <typename Work>
cudaError_t QueueWork(cudaStream_t stream, Work work) {
  if (stream == nullptr || stream->capture == nullptr) {
    if (stream != nullptr) ++stream->host_calls;
    if (stream != nullptr && stream->lazy != nullptr) {
      Append(stream, {[work = std::move(work)]() mutable {
               work();
               return true;
             }});
    } else {
      work();
    }
    return cudaSuccess;
  }
  constexpr size_t kWorkBeforeFault = 3;
  if (stream->fault == cudaStream::Fault::kOfAnOperation &&
      stream->capture->work.size() == kWorkBeforeFault && VoidsCapture(stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream->capture_is_void) return cudaErrorStreamCaptureInvalidated;
  stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}

}  // namespace weft::emulation
inline cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return weft::emulation::QueueWork(stream, [=] { std::memset(data, value, bytes); });
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  return weft::emulation::QueueWork(stream, [=] { std::memmove(to, from, bytes); });
}
// `pitch`: bytes from one row to the next.
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind /*kind*/,
                                     cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  return weft::emulation::QueueWork(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch,
                   static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new cudaStream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                                int /*priority*/) {
  *stream = new cudaStream;
  (*stream)->has_priority = true;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream->lazy != nullptr) weft::emulation::RunUntil(stream, stream->queued);
  delete stream;
  return cudaSuccess;
}
namespace weft::emulation {

inline void WaitForRoom(cudaStream_t stream) {
  while (stream != nullptr && stream->is_full && stream->holds > 0) Nap();
}
inline cudaError_t StateOf(cudaStream_t stream) {
  if (VoidsCapture(stream)) return cudaErrorStreamCaptureUnsupported;
  WaitForRoom(stream);
  return stream != nullptr && stream->holds > 0 ? cudaErrorNotReady : cudaSuccess;
}
inline cudaError_t WaitOnDevice(cudaStream_t stream) {
  while (StateOf(stream) == cudaErrorNotReady) Nap();
  return cudaSuccess;
}
// The host knows now that the first `calls` pieces of work are done.
inline void CountWait(cudaStream_t stream, int64_t calls) {
  if (stream == nullptr || calls <= stream->waited_calls) return;
  ++stream->host_waits;
  stream->waited_calls = calls;
}

}  // namespace weft::emulation
// A poll that finds work done is how a host waits that does not sleep.
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream != nullptr && stream->lazy != nullptr) {
    if (weft::emulation::VoidsCapture(stream)) return cudaErrorStreamCaptureUnsupported;
    const bool is_done = stream->progress->done == stream->queued;
    if (is_done || (!stream->is_polled && weft::emulation::DropsWait())) {
      stream->is_polled = false;
      return cudaSuccess;
    }
    stream->is_polled = true;
    weft::emulation::Poll(stream);
    return cudaErrorNotReady;
  }
  const cudaError_t code = weft::emulation::StateOf(stream);
  if (code == cudaSuccess && stream != nullptr)
    weft::emulation::CountWait(stream, stream->host_calls);
  return code;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (weft::emulation::DropsWait()) return cudaSuccess;
  if (stream != nullptr && stream->lazy != nullptr && !weft::emulation::VoidsCapture(stream)) {
    weft::emulation::RunUntil(stream, stream->queued);
  }
  if (stream != nullptr) weft::emulation::CountWait(stream, stream->host_calls);
  return weft::emulation::WaitOnDevice(stream);
}
inline constexpr unsigned cudaEventDisableTiming = 2;
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new cudaEvent;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->captured_on = stream != nullptr && stream->capture != nullptr ? stream : nullptr;
  if (event->captured_on != nullptr) return cudaSuccess;
  event->behind = weft::emulation::StateOf(stream) == cudaErrorNotReady ? stream : nullptr;
  event->stream = stream;
  event->calls = stream == nullptr ? 0 : stream->host_calls;
  event->at_ms = std::make_shared<double>(weft::emulation::clock_ms);
  event->progress = nullptr;
  if (stream == nullptr || stream->lazy == nullptr) return cudaSuccess;
  weft::emulation::Append(stream, {[at_ms = event->at_ms] {
                            *at_ms = weft::emulation::clock_ms;
                            return true;
                          }});
  event->progress = stream->progress;
  event->passes_at = stream->queued;
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (weft::emulation::VoidsCapture(event->captured_on)) return cudaErrorStreamCaptureUnsupported;
  if (!event->has_passed()) {
    weft::emulation::Poll(event->stream);
    return cudaErrorNotReady;
  }
  return weft::emulation::StateOf(event->behind);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (weft::emulation::VoidsCapture(event->captured_on)) return cudaErrorStreamCaptureUnsupported;
  if (weft::emulation::DropsWait()) return cudaSuccess;
  if (!event->has_passed()) weft::emulation::RunUntil(event->stream, event->passes_at);
  weft::emulation::CountWait(event->stream, event->calls);
  return weft::emulation::WaitOnDevice(event->behind);
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = static_cast<float>(*end->at_ms - *begin->at_ms);
  return cudaSuccess;
}
// Where the stream is not lazy it waits here, as what comes after it runs at once. A stream that is
// drawn into another's capture and never joined again makes it void.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->captured_on != nullptr) {
    if (stream != event->captured_on) weft::emulation::VoidsCapture(event->captured_on);
    return cudaSuccess;
  }
  if (weft::emulation::DropsWait()) return cudaSuccess;
  if (stream != nullptr && stream->lazy != nullptr) {
    if (event->progress == nullptr) return cudaSuccess;  // it was never recorded
    weft::emulation::Append(stream, {[progress = event->progress, count = event->passes_at] {
                                       return progress->done >= count;
                                     },
                                     event->stream});
    return cudaSuccess;
  }
  return weft::emulation::WaitOnDevice(event->behind);
}

enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeThreadLocal || stream->capture != nullptr ||
      stream->fault == cudaStream::Fault::kAtBegin) {
    return cudaErrorInvalidValue;
  }
  stream->capture = new cudaGraph;
  stream->capture_is_void = false;
  ++stream->captures;
  weft::emulation::capturing_stream = stream;
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->capture, nullptr);
  (*graph)->cannot_be_instantiated = stream->fault == cudaStream::Fault::kOfInstantiation;
  weft::emulation::capturing_stream = nullptr;
  if (!stream->capture_is_void) return cudaSuccess;
  cudaGraphDestroy(std::exchange(*graph, nullptr));
  return cudaErrorStreamCaptureInvalidated;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long /*flags*/) {
  if (graph->cannot_be_instantiated) return cudaErrorMemoryAllocation;
  *made =
      new cudaGraphExec{std::make_shared<const std::vector<std::function<void()>>>(graph->work)};
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return weft::emulation::QueueWork(stream, [all = graph->work] {
    for (const auto& work : *all) work();
  });
}
// NotSupported with WEFT_EMULATED_IPC=none.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data);
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* data);
inline constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
// NOLINTEND
