#include "launcher/agent/pair_door.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/machine/descriptor.h"
#include "plan/errors.h"
#include "process/clock.h"

namespace weft {
namespace {

constexpr size_t kMostGuests = 256;  // at once, strangers too
constexpr int64_t kGuestMs = 2000;   // to say something whole
constexpr int kBacklog = 256;

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

absl::StatusOr<SocketAddress> SocketAddressOf(const std::string& address, int port) {
  SocketAddress made;
  auto* four = reinterpret_cast<sockaddr_in*>(&made.bytes);
  auto* six = reinterpret_cast<sockaddr_in6*>(&made.bytes);
  if (inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    made.size = sizeof(*four);
  } else if (inet_pton(AF_INET6, address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    made.size = sizeof(*six);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no address"));
  }
  return made;
}

int64_t LeftMs(int64_t end_ms) {
  return std::max<int64_t>(0, end_ms - BootTimeMs());
}

}  // namespace

// ---- the door ----

class PairDoor::Impl {
 public:
  Impl(Descriptor listener, int port)
      : listener_(std::move(listener)), stop_(eventfd(0, EFD_CLOEXEC)), port_(port) {}
  ~Impl() {
    const uint64_t one = 1;
    if (write(stop_.get(), &one, sizeof(one)) < 0) return;  // it is stopped
    if (thread_.joinable()) thread_.join();
  }

  int port() const { return port_; }

  void Answer(const PairRound& round, const std::string& machine, int callers, int64_t limit_ms) {
    thread_ = std::thread([this, round, machine, callers, end_ms = BootTimeMs() + limit_ms] {
      Serve(round, machine, callers, end_ms);
    });
  }

 private:
  struct Guest {
    Descriptor connection;
    std::string said;
    int64_t until_ms = 0;
  };

  void Serve(const PairRound& round, const std::string& machine, int callers, int64_t end_ms) {
    std::list<Guest> guests;
    std::set<std::string> heard;  // what was said once proves nothing again
    while (static_cast<int>(heard.size()) < callers && LeftMs(end_ms) > 0) {
      std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Guest& guest : guests) fds.push_back({guest.connection.get(), POLLIN, 0});
      poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(LeftMs(end_ms), 100)));
      if (fds[0].revents != 0) return;
      for (auto guest = guests.begin(); guest != guests.end();) {
        const bool stays = Hear(*guest, round, machine, heard);
        guest = stays ? std::next(guest) : guests.erase(guest);
      }
      if (fds[1].revents != 0) Accept(guests);
    }
    listener_.Close();
  }

  void Accept(std::list<Guest>& guests) {
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid() || guests.size() >= kMostGuests) return;
    guests.push_back({std::move(connection), "", BootTimeMs() + kGuestMs});
  }

  // False once it is through, or out of patience.
  static bool Hear(Guest& guest, const PairRound& round, const std::string& machine,
                   std::set<std::string>& heard) {
    std::string bytes(kDialBytes - guest.said.size(), '\0');
    const ssize_t got = recv(guest.connection.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return BootTimeMs() < guest.until_ms;
    if (got <= 0) return false;
    guest.said.append(bytes, 0, static_cast<size_t>(got));
    if (guest.said.size() < kDialBytes) return true;
    const std::string answer = AnswerTo(round, machine, guest.said);
    if (answer.empty() || !heard.insert(guest.said).second) return false;
    // It fits into the buffer of a new connection.
    if (send(guest.connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return false;
    return false;
  }

  Descriptor listener_;
  const Descriptor stop_;
  const int port_;
  std::thread thread_;
};

PairDoor::PairDoor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PairDoor::~PairDoor() = default;

absl::StatusOr<std::unique_ptr<PairDoor>> PairDoor::Open(const std::string& address) {
  ASSIGN_OR_RETURN(SocketAddress own, SocketAddressOf(address, 0));
  Descriptor listener(
      socket(own.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (bind(listener.get(), own.get(), own.size) != 0 || listen(listener.get(), kBacklog) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own.bytes), &own.size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", address, ": ", std::strerror(errno)));
  }
  const bool is_four = own.bytes.ss_family == AF_INET;
  const int port = ntohs(is_four ? reinterpret_cast<sockaddr_in*>(&own.bytes)->sin_port
                                 : reinterpret_cast<sockaddr_in6*>(&own.bytes)->sin6_port);
  return std::unique_ptr<PairDoor>(new PairDoor(std::make_unique<Impl>(std::move(listener), port)));
}

int PairDoor::port() const {
  return impl_->port();
}
void PairDoor::Answer(const PairRound& round, const std::string& machine, int callers,
                      int64_t limit_ms) {
  impl_->Answer(round, machine, callers, limit_ms);
}

// ---- the dial ----

namespace {

class Call {
 public:
  Call(const PairRound& round, const proto::CheckPeer& peer) : round_(round), peer_(peer) {
    const auto address = SocketAddressOf(peer.address(), peer.port());
    if (!address.ok()) {
      End(std::string(address.status().message()));
      return;
    }
    connection_ = Descriptor(
        socket(address->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (connect(connection_.get(), address->get(), address->size) != 0 && errno != EINPROGRESS) {
      End(std::strerror(errno));
    }
  }

  bool is_over() const { return over_; }
  pollfd Wish() const {
    return {connection_.get(), static_cast<short>(dial_.empty() ? POLLOUT : POLLIN), 0};
  }

  // Something has happened on its connection.
  void GoOn() {
    if (dial_.empty()) return Speak();
    std::string bytes(kProofBytes - answer_.size(), '\0');
    const ssize_t got = recv(connection_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return End(std::strerror(errno));
    if (got == 0) return End("it hangs up");
    answer_.append(bytes, 0, static_cast<size_t>(got));
    if (answer_.size() < kProofBytes) return;
    End(IsAnswerTo(round_, peer_.machine(), dial_, answer_) ? "" : "another one answers there");
  }

  // Why it is not reached; empty: it is.
  std::string why(int64_t limit_ms) const {
    if (over_) return why_;
    return absl::StrCat("no answer within ", limit_ms, " ms");
  }

 private:
  void Speak() {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(connection_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return End(std::strerror(error));
    dial_ = DialMessage(round_, peer_.machine());
    const ssize_t sent = send(connection_.get(), dial_.data(), dial_.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(dial_.size())) End("it takes no word");
  }
  void End(const std::string& why) {
    over_ = true;
    why_ = why;
    connection_.Close();
  }

  const PairRound& round_;
  const proto::CheckPeer& peer_;
  Descriptor connection_;
  std::string dial_;
  std::string answer_;
  bool over_ = false;
  std::string why_;
};

}  // namespace

std::vector<proto::Unreached> DialPeers(const PairRound& round,
                                        const std::vector<proto::CheckPeer>& peers,
                                        int64_t limit_ms) {
  const int64_t end_ms = BootTimeMs() + limit_ms;
  std::list<Call> calls;
  for (const proto::CheckPeer& peer : peers) calls.emplace_back(round, peer);
  for (;;) {
    std::vector<pollfd> fds;
    std::vector<Call*> waiting;
    for (Call& call : calls) {
      if (call.is_over()) continue;
      fds.push_back(call.Wish());
      waiting.push_back(&call);
    }
    if (waiting.empty() || LeftMs(end_ms) == 0) break;
    poll(fds.data(), fds.size(), static_cast<int>(LeftMs(end_ms)));
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) waiting[i]->GoOn();
    }
  }
  std::vector<proto::Unreached> unreached;
  auto peer = peers.begin();
  for (const Call& call : calls) {
    const std::string why = call.why(limit_ms);
    if (!why.empty()) {
      proto::Unreached& each = unreached.emplace_back();
      each.set_machine(peer->machine());
      each.set_host(peer->host());
      each.set_why(absl::StrCat(peer->address(), ": ", why));
    }
    ++peer;
  }
  return unreached;
}

}  // namespace weft
