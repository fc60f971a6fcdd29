// A libnccl.so.2 for hosts without devices: NCCL's entry points between processes or threads of one
// host, over POSIX shared memory. On a communicator that does not block a call only notes what is
// to be done, ncclCommGetAsyncError() moves it and says ncclInProgress until it is done; on one
// that does the call itself moves it, and whatever else the device has under way, until it is done
// or another thread aborts it. A stream is then never ahead of its data, as the emulated device
// needs it. Sums are in rank order, rounded to their type after each rank, as a ring's are at each
// hop. On a lazy stream (streams.h) a call is taken at once, and moves when the stream comes to it.
// Communicators that share resources carry out their calls one after the other, as those of NCCL
// do, which launches all of them behind one stream.
//
// As NCCL's, an abort lets the kernels go of all that shares the communicator's resources, and then
// waits until the device has no others.
//
// It ends the process where NCCL would misbehave silently: two threads in one communicator, one
// that is used after its end or destroyed in an error, an abort that waits for what nobody aborts.
#include "tests/gpu/emulation/fake_nccl.h"

#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kMostRanks = 80;
constexpr int kMostSplits = 64;
constexpr size_t kPieceBytes = size_t{64} << 10;

// One direction between two ranks: a slot that one fills and the other empties.
struct Channel {
  std::atomic<int64_t> posted;
  std::atomic<int64_t> taken;
  size_t message_bytes;
  size_t piece_bytes;
  char piece[kPieceBytes];
};

struct Block {
  std::atomic<int> opened;
  std::atomic<int> split_arrivals[kMostSplits];
  int colors[kMostSplits][kMostRanks];
  Channel channels[1];  // [from][to]
};

struct Message {
  bool send = false;
  int peer = 0;
  char* data = nullptr;
  size_t bytes = 0;
  size_t done = 0;
  bool posted = false;
};

// Work is what a communicator is doing: messages, and what follows when all have passed.
struct Work {
  std::vector<Message> messages;
  std::vector<std::vector<char>> buffers;
  std::function<void()> begin;  // empty, or once it has begun
  std::function<void()> finish;
  cudaStream_t held = nullptr;  // until it is done
  bool is_over = false;         // it is done, or was aborted
  cudaStream_t lazy = nullptr;  // the lazy stream that moves it
};

// Communicators that are split from one another share these.
struct Resources {
  explicit Resources(int of_rank) : rank(of_rank) {}

  const int rank;                    // in the world: that device's
  std::deque<const Work*> launched;  // oldest first
  std::atomic<int> kernels = 0;      // that hold a stream
  std::atomic<bool> aborted = false;
  std::atomic<bool> stuck = false;  // whatever is done
};

void Nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  std::abort();
}

constexpr int kEachRank = -1;

struct Plant {
  int rank = kEachRank;
  int64_t call = 0;  // 0: of none
  std::string fault;
};

std::mutex all_mutex;  // guards the five below
auto* const live = new std::set<ncclComm_t>;
auto* const calls = new std::map<int, int64_t>;            // by rank in the world
auto* const entries = new std::map<std::string, int64_t>;  // by entry point
Plant plant;
int ids = 0;
std::atomic<int64_t> threads = 0;  // of NCCL's, for calls

}  // namespace

struct ncclComm {
  std::string name;
  int rank = 0;
  int size = 1;
  int world_rank = 0;
  Block* block = nullptr;
  size_t block_bytes = 0;
  bool everybody = false;  // has opened it
  bool shares = false;     // with what is split from it
  bool blocks = false;     // a call returns when it is done
  int most_ctas = INT_MIN;
  std::shared_ptr<Resources> resources;
  int splits = 0;
  ncclComm_t* made = nullptr;  // of the split that is under way
  int color = NCCL_SPLIT_NOCOLOR;
  bool made_blocks = false;  // what is made
  int made_ctas = INT_MIN;
  std::deque<std::shared_ptr<Work>> work;  // oldest first
  bool is_lazy = false;                    // its calls are on lazy streams, which move them
  bool hangs = false;
  ncclResult_t error = ncclSuccess;
  bool error_is_due = false;
  std::vector<cudaStream_t> held;
  bool is_unclean = false;
  bool is_closing = false;
  std::atomic<bool> inside = false;

  Channel& channel(int from, int to) { return block->channels[from * size + to]; }
};

namespace {

// Lives as long as a thread is inside an entry point.
class Inside {
 public:
  explicit Inside(ncclComm_t comm) : comm_(comm) {
    {
      const std::lock_guard<std::mutex> lock(all_mutex);
      if (live->count(comm) == 0) Die("a communicator is used after its end");
    }
    if (comm_->inside.exchange(true)) Die("two threads are in one communicator");
  }
  ~Inside() { comm_->inside = false; }

 private:
  ncclComm_t comm_;
};

ncclComm_t Open(const std::string& name, int rank, int size, int world_rank,
                std::shared_ptr<Resources> resources) {
  auto comm = std::make_unique<ncclComm>();
  comm->resources = std::move(resources);
  comm->name = name;
  comm->rank = rank;
  comm->size = size;
  comm->world_rank = world_rank;
  comm->block_bytes =
      sizeof(Block) + sizeof(Channel) * static_cast<size_t>(size) * static_cast<size_t>(size);
  const int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(comm->block_bytes)) != 0) Die("no shared memory");
  void* const mapped = mmap(nullptr, comm->block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) Die("no shared memory");
  comm->block = static_cast<Block*>(mapped);
  if (++comm->block->opened == size) shm_unlink(name.c_str());
  const std::lock_guard<std::mutex> lock(all_mutex);
  live->insert(comm.get());
  return comm.release();
}

void Hold(ncclComm_t comm, cudaStream_t stream) {
  ++stream->holds;
  ++comm->resources->kernels;
}
void LetGo(ncclComm_t comm, cudaStream_t stream) {
  --stream->holds;
  --comm->resources->kernels;
}

// Its kernels leave the device.
void Leave(ncclComm_t comm) {
  for (cudaStream_t stream : std::exchange(comm->held, {})) LetGo(comm, stream);
  for (const auto& work : comm->work) {
    std::erase(comm->resources->launched, work.get());
    if (work->held != nullptr) LetGo(comm, work->held);
    work->is_over = true;
  }
  comm->work.clear();
}

// Whether a thread is inside a call on a communicator that blocks and has these.
bool IsBlocked(const Resources& own) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return std::any_of(live->begin(), live->end(), [&](ncclComm_t comm) {
    return comm->resources.get() == &own && comm->blocks && comm->inside;
  });
}

// Whether the device that `own` is on runs a kernel of others, which nobody has aborted.
bool OthersRun(const Resources& own) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return std::any_of(live->begin(), live->end(), [&](ncclComm_t comm) {
    const Resources& other = *comm->resources;
    return &other != &own && other.rank == own.rank && !other.aborted && other.kernels > 0;
  });
}

// The flag, and the wait for the device that follows.
void Abort(ncclComm_t comm) {
  Resources& own = *comm->resources;
  while (own.stuck) Nap();
  {
    const std::lock_guard<std::mutex> lock(all_mutex);
    own.aborted = true;
    for (ncclComm_t other : *live) {
      if (other->resources.get() == &own) Leave(other);
    }
  }
  constexpr int kMostNaps = 20'000;
  for (int i = 0; OthersRun(own); ++i) {
    Nap();
    if (i == kMostNaps) Die("an abort waits for kernels that nobody aborts");
  }
}

void End(ncclComm_t comm) {
  Leave(comm);
  if (!comm->everybody) shm_unlink(comm->name.c_str());
  {
    const std::lock_guard<std::mutex> lock(all_mutex);
    live->erase(comm);
  }
  munmap(comm->block, comm->block_bytes);
  delete comm;
}

void SendPiece(ncclComm_t comm, Message* message) {
  Channel& channel = comm->channel(comm->rank, message->peer);
  if (channel.taken != channel.posted) return;
  if (message->posted) message->done += channel.piece_bytes;
  message->posted = message->done < message->bytes;
  if (!message->posted) return;
  channel.message_bytes = message->bytes;
  channel.piece_bytes = std::min(kPieceBytes, message->bytes - message->done);
  std::memcpy(channel.piece, message->data + message->done, channel.piece_bytes);
  ++channel.posted;
}

void TakePiece(ncclComm_t comm, Message* message) {
  Channel& channel = comm->channel(message->peer, comm->rank);
  if (channel.taken == channel.posted) return;
  if (channel.message_bytes != message->bytes) Die("a message is not as long as its receive");
  std::memcpy(message->data + message->done, channel.piece, channel.piece_bytes);
  message->done += channel.piece_bytes;
  ++channel.taken;
}

void Advance(ncclComm_t comm) {
  Work& work = *comm->work.front();
  if (comm->resources->launched.front() != &work) return;
  if (work.begin) std::exchange(work.begin, nullptr)();
  std::set<std::pair<bool, int>> busy;  // messages of a pair pass in order
  bool all = true;
  for (Message& message : work.messages) {
    if (message.done == message.bytes) continue;
    all = false;
    if (!busy.insert({message.send, message.peer}).second) continue;
    message.send ? SendPiece(comm, &message) : TakePiece(comm, &message);
  }
  if (!all) return;
  if (work.finish) work.finish();
  if (work.held != nullptr) LetGo(comm, work.held);
  work.is_over = true;
  comm->resources->launched.pop_front();
  comm->work.pop_front();
}

void AdvanceSplit(ncclComm_t comm) {
  const int round = comm->splits - 1;
  if (comm->block->split_arrivals[round] < comm->size) return;
  ncclComm_t* const made = std::exchange(comm->made, nullptr);
  if (comm->color == NCCL_SPLIT_NOCOLOR) return;
  int rank = 0;
  int size = 0;
  for (int i = 0; i < comm->size; ++i) {
    if (comm->block->colors[round][i] != comm->color) continue;
    if (i < comm->rank) ++rank;
    ++size;
  }
  const std::string name =
      comm->name + "-" + std::to_string(round) + "-" + std::to_string(comm->color);
  const std::atomic_ref<ncclComm_t> there(*made);
  ncclComm_t opened =
      Open(name, rank, size, comm->world_rank,
           comm->shares ? comm->resources : std::make_shared<Resources>(comm->world_rank));
  opened->blocks = comm->made_blocks;
  opened->most_ctas = comm->made_ctas;
  there = opened;
}

// The fault that is planted for this call, or empty.
std::string FaultOf(ncclComm_t comm) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  static const bool from_environment = [] {
    const char* const text = std::getenv("WEFT_FAKE_NCCL");
    long long call = 0;
    char fault[16] = {};
    if (text == nullptr || std::sscanf(text, "%d %lld %15s", &plant.rank, &call, fault) != 3) {
      return false;
    }
    plant.call = call;
    plant.fault = fault;
    return true;
  }();
  (void)from_environment;
  const int64_t call = ++(*calls)[comm->world_rank];
  const bool is_here = plant.rank == kEachRank || plant.rank == comm->world_rank;
  return is_here && call == plant.call ? plant.fault : "";
}

// It has not taken yet what it was given.
bool IsTaking(ncclComm_t comm) {
  if (!comm->everybody || comm->made != nullptr || comm->hangs) return true;
  if (comm->is_lazy) return false;
  return !comm->work.empty() && comm->work.back()->held == nullptr;
}

ncclResult_t Queue(ncclComm_t comm, std::shared_ptr<Work> work, cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(stream->lazy->mutex);
  comm->is_lazy = true;
  work->lazy = stream;
  comm->resources->launched.push_back(work.get());
  comm->work.push_back(work);
  weft::emulation::Append(stream, {[comm, work] {
                            if (!work->is_over && comm->work.front() == work) Advance(comm);
                            return work->is_over;
                          }});
  return ncclSuccess;
}

// Moves what other communicators of that rank's device have under way, as long as nobody is in
// them.
void AdvanceOthers(ncclComm_t own) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  for (ncclComm_t other : *live) {
    if (other == own || other->world_rank != own->world_rank || other->inside.exchange(true)) {
      continue;
    }
    const bool may_move = other->everybody && !other->is_lazy && !other->hangs;
    if (may_move && !other->work.empty()) Advance(other);
    other->inside = false;
  }
}

// A call on a communicator that blocks waits here.
ncclResult_t BlockUntilTaken(ncclComm_t comm) {
  for (int64_t round = 0; IsTaking(comm); ++round) {
    if (comm->resources->aborted) return ncclInternalError;
    if (!comm->hangs && !comm->work.empty()) Advance(comm);
    AdvanceOthers(comm);
    round < 100 ? std::this_thread::yield() : Nap();
  }
  return ncclSuccess;
}

// The device goes on while the host closes a communicator.
void RunTowardsEnd(ncclComm_t comm) {
  if (comm->work.empty()) return;
  weft::emulation::LazyDevice& device = *comm->work.front()->lazy->lazy;
  const std::lock_guard<std::recursive_mutex> lock(device.mutex);
  for (cudaStream_t stream : device.streams) weft::emulation::RunOldest(stream);
}

ncclResult_t Begin(ncclComm_t comm, std::shared_ptr<Work> work, cudaStream_t stream) {
  const Inside inside(comm);
  if (IsTaking(comm)) Die("a call before the last one was taken");
  if (!comm->blocks) ++threads;
  if (stream->lazy != nullptr) return Queue(comm, std::move(work), stream);
  const std::string fault = FaultOf(comm);
  if (fault == "refuse") return ncclInvalidUsage;
  if (fault == "die") kill(getpid(), SIGKILL);
  if (fault == "late" || fault == "full" || fault == "stuck" || fault == "error") {
    Hold(comm, stream);
    comm->held.push_back(stream);
    comm->error_is_due = fault == "error";
    if (fault == "full") stream->is_full = true;
    if (fault == "stuck") comm->resources->stuck = true;
    return ncclSuccess;
  }
  if (fault == "unclean") comm->is_unclean = true;
  comm->hangs = fault == "hang";
  const bool later = stream->has_priority && work->finish;  // of a group, kernels follow at once
  if (later) {
    work->held = stream;
    Hold(comm, stream);
  }
  comm->resources->launched.push_back(work.get());
  comm->work.push_back(std::move(work));
  return comm->blocks ? BlockUntilTaken(comm) : ncclInProgress;
}

// Every rank's `part` bytes from `from` to every other; buffer i is what rank i sent.
std::shared_ptr<Work> EachToAll(ncclComm_t comm, const void* from, size_t part) {
  auto work = std::make_shared<Work>();
  work->buffers.assign(static_cast<size_t>(comm->size), std::vector<char>(part));
  char* const own_data = work->buffers[static_cast<size_t>(comm->rank)].data();
  work->begin = [own_data, from, part] { std::memcpy(own_data, from, part); };
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer == comm->rank) continue;
    work->messages.push_back({true, peer, own_data, part});
    work->messages.push_back({false, peer, work->buffers[static_cast<size_t>(peer)].data(), part});
  }
  return work;
}

size_t BytesOf(ncclDataType_t type) {
  if (type == ncclFloat32) return sizeof(float);
  if (type == ncclBfloat16 || type == ncclFloat16) return sizeof(uint16_t);
  if (type == ncclUint8) return 1;
  Die("a type that is not played");
}

float Load(const char* from, ncclDataType_t type) {
  if (type == ncclFloat16) {
    _Float16 half = 0;
    std::memcpy(&half, from, sizeof(half));
    return static_cast<float>(half);
  }
  uint32_t bits = 0;  // of bf16: the upper half of f32's
  char* const to = reinterpret_cast<char*>(&bits);
  std::memcpy(type == ncclFloat32 ? to : to + sizeof(uint16_t), from, BytesOf(type));
  return std::bit_cast<float>(bits);
}

// Rounds to nearest, ties to even.
void Store(float value, ncclDataType_t type, char* to) {
  if (type == ncclFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (type == ncclFloat16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(to, &half, sizeof(half));
  } else {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    bits = value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
    const auto upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(to, &upper, sizeof(upper));
  }
}

// Adds up `count` elements from `first` on into `to`.
void Sum(const Work& work, ncclDataType_t type, size_t first, size_t count, void* to) {
  const size_t bytes = BytesOf(type);
  for (size_t i = 0; i < count; ++i) {
    char* const total = static_cast<char*>(to) + i * bytes;
    for (size_t rank = 0; rank < work.buffers.size(); ++rank) {
      const float value = Load(work.buffers[rank].data() + (first + i) * bytes, type);
      Store(rank == 0 ? value : Load(total, type) + value, type, total);
    }
  }
}

void Count(const char* entry) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  ++(*entries)[entry];
}

// These are this thread's, between ncclGroupStart and its end.
thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;
thread_local cudaStream_t group_stream = nullptr;
thread_local std::vector<Message> group_messages;

ncclResult_t Post(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  if (group_depth == 0) Die("a transfer outside of a group");
  if (group_comm != nullptr && group_comm != comm) Die("a group over two communicators");
  if (message.peer < 0 || message.peer >= comm->size) return ncclInvalidArgument;
  group_comm = comm;
  group_stream = stream;
  group_messages.push_back(message);
  return ncclSuccess;
}

}  // namespace

extern "C" {

void WeftFakeNcclPlant(int rank, int64_t call, const char* fault) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  plant = {rank, call, fault};
  calls->clear();
}

bool WeftFakeNcclKeepsOrder() {
  static const bool asked = [] {
    const char* const value = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return asked;
}

int WeftFakeNcclOpen() {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return static_cast<int>(live->size());
}

int WeftFakeNcclOpenWith(int most_ctas) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return static_cast<int>(std::count_if(live->begin(), live->end(), [most_ctas](ncclComm_t comm) {
    return comm->most_ctas == most_ctas;
  }));
}

int64_t WeftFakeNcclThreads() {
  return threads;
}

int64_t WeftFakeNcclCalls(const char* entry) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return (*entries)[entry];
}

int WeftFakeNcclIds() {
  const std::lock_guard<std::mutex> lock(all_mutex);
  return ids;
}

int WeftFakeNcclResources() {
  const std::lock_guard<std::mutex> lock(all_mutex);
  std::set<const Resources*> distinct;
  for (const ncclComm_t comm : *live) distinct.insert(comm->resources.get());
  return static_cast<int>(distinct.size());
}

ncclResult_t ncclGetVersion(int* version) {
  (void)WeftFakeNcclKeepsOrder();
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard<std::mutex> lock(all_mutex);
  std::snprintf(id->internal, sizeof(id->internal), "/weft-fake-nccl-%d-%d", getpid(), ids++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int world_size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->size != sizeof(ncclConfig_t) || config->blocking != 0) {
    Die("it would block, and nobody could abort it");
  }
  if (world_size > kMostRanks) Die("too many ranks");
  *comm = Open(id.internal, rank, world_size, rank, std::make_shared<Resources>(rank));
  (*comm)->shares = config->splitShare == 1;
  (*comm)->most_ctas = config->maxCTAs;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int /*key*/, ncclComm_t* made,
                           ncclConfig_t* config) {
  const Inside inside(comm);
  if (comm->blocks) Die("it would block, and nobody could abort what it makes");
  if (comm->splits == kMostSplits) Die("too many splits");
  const int round = comm->splits++;
  comm->block->colors[round][comm->rank] = color;
  comm->color = color;
  comm->made = made;
  comm->made_blocks = config->blocking != 0;  // NCCL's default is to block
  comm->made_ctas = config->maxCTAs;
  ++comm->block->split_arrivals[round];
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Inside inside(comm);
  *state = comm->error;
  if (comm->error != ncclSuccess) return ncclSuccess;
  if (comm->error_is_due) comm->error = ncclRemoteError;  // when asked again
  comm->everybody = comm->everybody || comm->block->opened == comm->size;
  if (comm->everybody && comm->made != nullptr) AdvanceSplit(comm);
  if (comm->everybody && !comm->is_lazy && !comm->work.empty() && !comm->hangs) Advance(comm);
  if (comm->is_closing && comm->is_lazy) RunTowardsEnd(comm);
  const bool is_busy = comm->is_closing && comm->is_lazy && !comm->work.empty();
  *state = is_busy || IsTaking(comm) ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Inside inside(comm);
  if (comm->is_unclean) comm->error = ncclRemoteError;
  comm->is_closing = true;
  if (!comm->blocks) return ncclInProgress;
  while (comm->is_lazy && !comm->work.empty() && !comm->resources->aborted) RunTowardsEnd(comm);
  return comm->error;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const Inside inside(comm);
    if (!comm->held.empty() || !comm->work.empty()) Die("destroyed while it is busy");
    if (comm->error != ncclSuccess) Die("destroyed in an error");
  }
  End(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  // The flag lets a thread leave that is inside a call on one that blocks.
  comm->resources->aborted = true;
  while (IsBlocked(*comm->resources)) Nap();
  { const Inside inside(comm); }
  Abort(comm);
  End(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited" : "an error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "planted";
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Count("ncclAllReduce");
  if (op != ncclSum || type == ncclUint8) return ncclInvalidArgument;
  auto work = EachToAll(comm, from, count * BytesOf(type));
  work->finish = [work = work.get(), type, count, to] { Sum(*work, type, 0, count, to); };
  return Begin(comm, std::move(work), stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t part, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Count("ncclReduceScatter");
  if (op != ncclSum || type == ncclUint8) return ncclInvalidArgument;
  auto work = EachToAll(comm, from, part * BytesOf(type) * static_cast<size_t>(comm->size));
  const size_t first = part * static_cast<size_t>(comm->rank);
  work->finish = [work = work.get(), type, first, part, to] { Sum(*work, type, first, part, to); };
  return Begin(comm, std::move(work), stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t part, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  Count("ncclAllGather");
  const size_t bytes = part * BytesOf(type);
  auto work = EachToAll(comm, from, bytes);
  work->finish = [work = work.get(), bytes, to] {
    for (size_t i = 0; i < work->buffers.size(); ++i) {
      std::memcpy(static_cast<char*>(to) + i * bytes, work->buffers[i].data(), bytes);
    }
  };
  return Begin(comm, std::move(work), stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t /*type*/, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  Count("ncclSend");
  char* const bytes = static_cast<char*>(const_cast<void*>(data));
  return Post({true, peer, bytes, count}, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  Count("ncclRecv");
  return Post({false, peer, static_cast<char*>(data), count}, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return ncclSuccess;
  Count("ncclGroupEnd");
  auto work = std::make_shared<Work>();
  work->messages = std::exchange(group_messages, {});
  return Begin(std::exchange(group_comm, nullptr), std::move(work), group_stream);
}

}  // extern "C"
