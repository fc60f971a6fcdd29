#include "tests/worker/backend/thread_comm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "worker/backend/cpu/comm/collectives.h"
#include "worker/backend/cpu/comm/transport.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

enum class State { kWaiting, kDone, kWrongSize };

struct Post {
  const void* from = nullptr;  // of a send
  void* to = nullptr;          // of a receive
  int64_t bytes = 0;
  std::atomic<State> state = State::kWaiting;
};
using PostPtr = std::shared_ptr<Post>;

// Where posts of all ranks meet. Thread-safe.
class Mailboxes {
 public:
  using Route = std::tuple<int, int, int>;  // from, to, tag

  explicit Mailboxes(int world) : changes_(static_cast<size_t>(world)) {}

  void Add(const Route& route, const PostPtr& post) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Box& box = boxes_[route];
    std::deque<PostPtr>& others = post->to == nullptr ? box.receives : box.sends;
    if (others.empty()) {
      (post->to == nullptr ? box.sends : box.receives).push_back(post);
      return;
    }
    const PostPtr other = others.front();
    others.pop_front();
    const Post& send = post->to == nullptr ? *post : *other;
    const Post& receive = post->to == nullptr ? *other : *post;
    const bool same_size = send.bytes == receive.bytes;
    if (same_size) std::memcpy(receive.to, send.from, static_cast<size_t>(send.bytes));
    other->state = post->state = same_size ? State::kDone : State::kWrongSize;
    for (const int rank : {std::get<0>(route), std::get<1>(route)}) {
      Changes& changes = changes_[static_cast<size_t>(rank)];
      ++changes.count;
      changes.one_more.notify_all();
    }
  }

  // Sleeps until a post of the rank has got done since *seen.
  void AwaitChange(int rank, int64_t* seen, std::chrono::microseconds most) {
    std::unique_lock<std::mutex> lock(mutex_);
    Changes& changes = changes_[static_cast<size_t>(rank)];
    changes.one_more.wait_for(lock, most, [&] { return changes.count != *seen; });
    *seen = changes.count;
  }

  void Remove(const Route& route, const PostPtr& post) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Box& box = boxes_[route];
    std::erase(box.sends, post);
    std::erase(box.receives, post);
  }

 private:
  struct Box {
    std::deque<PostPtr> sends;
    std::deque<PostPtr> receives;
  };
  struct Changes {
    int64_t count = 0;  // of posts that got done
    std::condition_variable one_more;
  };
  std::mutex mutex_;  // guards all below and, until both sides are done, the bytes
  std::map<Route, Box> boxes_;
  std::vector<Changes> changes_;  // by rank
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(int rank, int world, int64_t max_message_bytes,
                  std::shared_ptr<Mailboxes> mailboxes)
      : rank_(rank),
        world_(world),
        max_message_bytes_(max_message_bytes),
        mailboxes_(std::move(mailboxes)) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_; }
  int64_t max_message_bytes() const override { return max_message_bytes_; }

  BackendStatus Send(int peer, int tag, const void* data, int64_t bytes, int* request) override {
    const auto post = std::make_shared<Post>();
    post->from = data;
    post->bytes = bytes;
    return Start({rank_, peer, tag}, post, request);
  }
  BackendStatus Receive(int peer, int tag, void* data, int64_t bytes, int* request) override {
    const auto post = std::make_shared<Post>();
    post->to = data;
    post->bytes = bytes;
    return Start({peer, rank_, tag}, post, request);
  }
  BackendStatus Test(int request, bool* done) override {
    const State state = started_.at(request).second->state;
    *done = state != State::kWaiting;
    if (*done) started_.erase(request);
    if (state == State::kWrongSize) {
      return Failure(kInternal, "rank %d: a message is not as long as its receive", rank_);
    }
    return {};
  }
  void Cancel(int request) override {
    const auto& [route, post] = started_.at(request);
    mailboxes_->Remove(route, post);
    started_.erase(request);
  }
  bool AwaitChange(int64_t* seen, std::chrono::microseconds most) override {
    mailboxes_->AwaitChange(rank_, seen, most);
    return true;
  }

 private:
  BackendStatus Start(const Mailboxes::Route& route, const PostPtr& post, int* request) {
    *request = next_request_++;
    started_.emplace(*request, std::make_pair(route, post));
    mailboxes_->Add(route, post);
    return {};
  }

  const int rank_;
  const int world_;
  const int64_t max_message_bytes_;
  const std::shared_ptr<Mailboxes> mailboxes_;
  int next_request_ = 0;
  std::map<int, std::pair<Mailboxes::Route, PostPtr>> started_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> MakeThreadComms(int world, const ThreadCommOptions& options) {
  const auto mailboxes = std::make_shared<Mailboxes>(world);
  std::vector<std::unique_ptr<Comm>> comms;
  comms.reserve(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    comms.push_back(MakeCollectives(
        std::make_unique<ThreadTransport>(rank, world, options.max_message_bytes, mailboxes),
        options.comm));
  }
  return comms;
}

bool ThreadCommsSeeTheirPeers() {
  return true;
}

}  // namespace weft
