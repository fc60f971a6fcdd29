// One rank of process_test.cc, started by mpirun: opens the cpu backend as a worker does, runs the
// case that its argument names, and prints "rank <r>: <outcome>". The second argument names a file
// with which rank 0 says that it is through.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "worker/backend/loader.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

void Say(const Comm& comm, const std::string& outcome) {
  std::printf("rank %d: %s\n", comm.rank(), outcome.c_str());
  std::fflush(stdout);
}

// 1 / (rank + 3) adds differently in another order; so do the scales.
float Value(int rank, int64_t index) {
  return static_cast<float>(1 + index % 97) / static_cast<float>(rank + 3) *
         (rank == 1 ? 1e4F : 1.0F);
}

std::string Reduce(Comm& comm, int group, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = Value(comm.rank(), i);
  const BackendStatus s = comm.AllReduce(group, ReduceOp::kSum, {values.data(), 1, count});
  if (!s.ok()) return s.text;
  for (int64_t i = 0; i < count; ++i) {
    float expected = Value(0, i);
    for (int rank = 1; rank < comm.world_size(); ++rank) expected += Value(rank, i);
    if (values[static_cast<size_t>(i)] != expected) return "wrong sum at " + std::to_string(i);
  }
  return "";
}

// The two halves of an all-reduce, apart: `count` elements a rank.
std::string ReduceByHalves(Comm& comm, int group, int64_t count) {
  const int64_t all = count * comm.world_size();
  std::vector<float> whole(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) whole[static_cast<size_t>(i)] = Value(comm.rank(), i);
  std::vector<float> halves = whole;
  if (!comm.AllReduce(group, ReduceOp::kSum, {whole.data(), 1, all}).ok()) return "no sum";
  const View data = {halves.data(), 1, all};
  if (const auto s = comm.ReduceScatter(group, ReduceOp::kSum, data); !s.ok()) return s.text;
  for (int64_t i = 0; i < all; ++i) {
    if (i / std::max<int64_t>(count, 1) != comm.rank()) halves[static_cast<size_t>(i)] = -1;
  }
  if (const auto s = comm.AllGather(group, data); !s.ok()) return s.text;
  return halves == whole ? "" : "the halves of a reduction do not make the whole";
}

// 12 MB to the next rank while the previous one sends as much: would hang if not posted together.
std::string Ring(Comm& comm) {
  const int64_t count = 3'000'001;
  const int world = comm.world_size();
  const int previous = (comm.rank() + world - 1) % world;
  std::vector<float> sent(static_cast<size_t>(count), static_cast<float>(comm.rank()));
  std::vector<float> received(static_cast<size_t>(count));
  const Transfer transfers[] = {{true, (comm.rank() + 1) % world, {sent.data(), 1, count}},
                                {false, previous, {received.data(), 1, count}}};
  const BackendStatus s = comm.Exchange(transfers, 2);
  if (!s.ok()) return s.text;
  for (const float value : received) {
    if (value != static_cast<float>(previous)) return "wrong value around the ring";
  }
  return "";
}

// A reduction of 12 MB that moves while the ring does, and while this rank computes.
std::string StartedBesideOthers(Comm& comm, int group) {
  std::vector<float> values(3'000'000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Value(comm.rank(), static_cast<int64_t>(i));
  }
  std::vector<float> expected = values;
  const auto row = [](std::vector<float>& data) {
    return View{data.data(), 1, static_cast<int64_t>(data.size())};
  };
  int64_t ticket = 0;
  if (const BackendStatus s =
          comm.Start({CollectiveKind::kAllReduce, group, ReduceOp::kSum, row(values)}, &ticket);
      !s.ok()) {
    return s.text;
  }
  if (std::string error = Ring(comm); !error.empty()) return error;
  if (const BackendStatus s = comm.Wait(ticket); !s.ok()) return s.text;
  if (!comm.AllReduce(group, ReduceOp::kSum, row(expected)).ok()) return "no sum";
  return values == expected ? "" : "a started sum is not the blocking one";
}

std::string Collectives(Comm& comm, int group) {
  for (const int64_t count : {1, 1000, 5000, 1'000'003}) {
    if (std::string error = Reduce(comm, group, count); !error.empty()) return error;
  }
  for (const int64_t count : {0, 1, 5000, 1'000'003}) {
    if (std::string error = ReduceByHalves(comm, group, count); !error.empty()) return error;
  }
  if (std::string error = Ring(comm); !error.empty()) return error;
  if (std::string error = StartedBesideOthers(comm, group); !error.empty()) return error;
  double values[] = {1.0 / (comm.rank() + 3), static_cast<double>(comm.rank())};
  if (!comm.AllReduceHost(group, ReduceOp::kMax, values, 2).ok()) return "host all-reduce failed";
  if (values[0] != 1.0 / 3 || values[1] != comm.world_size() - 1) return "wrong maximum";
  return comm.Barrier(group).ok() ? "collectives agree" : "barrier failed";
}

constexpr std::chrono::milliseconds kDeadline{20000};

// Rank 0 waits for ranks that do not come, and is interrupted. How soon that ends a wait is told by
// the tests whose ranks are threads; here it is not MPI that it waits for.
std::string Interrupted(Comm& comm, int group) {
  const Clock::time_point begin = Clock::now();
  std::thread link([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    comm.Interrupt("lease lost");
  });
  const BackendStatus s = comm.Barrier(group);
  const bool soon = Clock::now() - begin < kDeadline;
  link.join();
  return std::string(soon ? "soon: " : "late: ") + s.text;
}

// The others stay away from the barrier until rank 0 is through: mpirun ends all where one leaves.
void AwaitFile(const std::string& path) {
  const Clock::time_point end = Clock::now() + 2 * kDeadline;
  while (access(path.c_str(), F_OK) != 0 && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int Run(const std::string& name, const std::string& through) {
  const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCpu);
  if (!api.ok()) {
    std::printf("no backend: %s\n", api.status().ToString().c_str());
    return 1;
  }
  const CommOptions options = {.init_timeout_ms = kDeadline.count(),
                               .timeout_ms = name == "timeout" ? 300 : kDeadline.count()};
  Comm* comm = nullptr;
  if (const BackendStatus s = (*api)->open_comm(&options, &comm); !s.ok()) {
    std::printf("no communicator: %s\n", s.text);
    return 1;
  }
  std::vector<int> ranks(static_cast<size_t>(comm->world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  int group = -1;
  if (!comm->NewGroup(GroupUse::kStarted, ranks.data(), comm->world_size(), &group).ok()) return 1;
  if (name == "collectives") {
    Say(*comm, Collectives(*comm, group));
    (*api)->close_comm(comm);
    return 0;
  }
  if (comm->rank() == 0) {
    Say(*comm, name == "timeout" ? comm->Barrier(group).text : Interrupted(*comm, group));
    close(open(through.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  } else {
    AwaitFile(through);
  }
  std::fflush(stdout);
  _exit(0);  // as a worker does after a failure: no orderly end
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return argc == 3 ? weft::Run(argv[1], argv[2]) : 2;
}
