// Somebody else on the network scans every TCP port of every host, and hears whoever answers, while
// no job runs and while one does.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/hosts/hosts_run.h"

namespace weft {
namespace {

constexpr int kLastPort = 65535;
constexpr int kAtATime = 400;
constexpr int kConnectMs = 1000;
constexpr int kAnswerMs = 400;
constexpr int kSsh = 22;          // the bed's own
constexpr char kTlsAlert = 0x15;  // of TLS itself: "go away"

int Dial(const std::string& address, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  const int code = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  if (code == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

bool IsConnected(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// The ports of the range that take a connection.
std::vector<int> OpenPorts(const std::string& address, int first, int last) {
  std::vector<pollfd> fds;
  for (int port = first; port <= last; ++port) fds.push_back({Dial(address, port), POLLOUT, 0});
  const double end_s = NowSeconds() + kConnectMs / 1000.0;
  std::vector<int> open;
  size_t waiting = fds.size();
  while (waiting > 0 && NowSeconds() < end_s) {
    poll(fds.data(), fds.size(), 50);
    waiting = 0;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0) continue;
      if (fds[i].revents == 0) {
        ++waiting;
        continue;
      }
      if (IsConnected(fds[i].fd)) open.push_back(first + static_cast<int>(i));
      close(fds[i].fd);
      fds[i].fd = -1;
    }
  }
  for (const pollfd& each : fds) {
    if (each.fd >= 0) close(each.fd);
  }
  return open;
}

// Returns what comes back for these words.
std::string Answer(const std::string& address, int port, const std::string& words) {
  const int fd = Dial(address, port);
  pollfd ready = {fd, POLLOUT, 0};
  if (poll(&ready, 1, kConnectMs) == 1) send(fd, words.data(), words.size(), MSG_NOSIGNAL);
  ready.events = POLLIN;
  char bytes[64];
  ssize_t got = 0;
  if (poll(&ready, 1, kAnswerMs) == 1) got = recv(fd, bytes, sizeof(bytes), 0);
  close(fd);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

// A line for each open port and what it says: "<port> <answers in hex>".
std::string Scan(const std::string& address) {
  std::string found;
  for (int first = 1; first <= kLastPort; first += kAtATime) {
    for (const int port : OpenPorts(address, first, std::min(first + kAtATime - 1, kLastPort))) {
      std::string answers;
      for (const char* words : {"", "GET / HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
        if (port != kSsh && answers.empty()) answers = Answer(address, port, words);
      }
      absl::StrAppend(&found, port, " ", absl::BytesToHexString(answers), "\n");
    }
  }
  return found;
}

class HostsPorts : public HostsRun {
 protected:
  struct Port {
    int number = 0;
    std::string answer;  // bytes
  };
  // As somebody on host `from` finds them on host `to`.
  std::vector<Port> PortsOf(int to, int from) const {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const int network = bed_->OpenNetwork(from);
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      if (setns(network, CLONE_NEWNET) != 0) _exit(1);
      const std::string found = Scan(HostBed::Address(to));
      _exit(write(ends[1], found.data(), found.size()) < 0 ? 1 : 0);
    }
    close(network);
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = read(ends[0], part, sizeof(part))) > 0;) {
      text.append(part, static_cast<size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    std::vector<Port> ports;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> words =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (std::stoi(words.first) != kSsh) {
        ports.push_back({std::stoi(words.first), absl::HexStringToBytes(words.second)});
      }
    }
    return ports;
  }
  void ExpectSilence(const std::vector<Port>& ports) const {
    for (const Port& port : ports) {
      const bool says_nothing = port.answer.empty() || port.answer.front() == kTlsAlert;
      EXPECT_TRUE(says_nothing) << port.number << ": " << absl::CHexEscape(port.answer);
    }
  }
};

TEST_F(HostsPorts, AreClosedWhileNoJobRuns) {
  EXPECT_EQ(PortsOf(1, 2).size(), 0u);
}

TEST_F(HostsPorts, AreClosedWhileAJobRunsOnOneHost) {
  Start(WriteJob(kFixed, "slots: 6", kUnchecked, 100000), {});
  ASSERT_TRUE(WaitForStep(2)) << Words();
  for (const Port& port : PortsOf(1, 2)) {
    ADD_FAILURE() << port.number << " is open\n" << bed_->Run(1, "ss -Hltnp").out;
  }
  StopAndExpectEnd();
}

TEST_F(HostsPorts, SayNothingToStrangersAndStayInTheNetworkWhileAJobRuns) {
  StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts(), kUnchecked, 100000));
  ASSERT_TRUE(WaitForStep(2)) << Words();
  for (int host = 1; host <= 3; ++host) {
    // "LISTEN 0 128 10.78.0.11:1024 0.0.0.0:* users:((...))"
    const std::string listeners = bed_->Run(host, "ss -Hltnp").out;
    for (const absl::string_view line : absl::StrSplit(listeners, '\n', absl::SkipEmpty())) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      ASSERT_GE(words.size(), 4u) << line;
      const bool is_ours = !absl::StrContains(line, "sshd");
      const bool is_inside = absl::StartsWith(words[3], HostBed::Address(host) + ":") ||
                             absl::StartsWith(words[3], "[::ffff:" + HostBed::Address(host)) ||
                             absl::StartsWith(words[3], "127.0.0.1:") ||
                             absl::StartsWith(words[3], "[::1]:");
      EXPECT_TRUE(!is_ours || is_inside) << HostBed::Name(host) << ": " << line;
    }
    if (host == 3) continue;  // it has what host 2 has, and 65,535 ports are many
    const std::vector<Port> ports = PortsOf(host, host == 1 ? 2 : 1);
    EXPECT_FALSE(ports.empty()) << "ranks of several hosts have to reach each other";
    ExpectSilence(ports);
  }
  const int64_t generation = LastGeneration();
  ASSERT_TRUE(WaitForStep(Steps().back().step + 5)) << "who was scanned goes on\n" << Words();
  EXPECT_EQ(LastGeneration(), generation);
  StopAndExpectEnd();
}

}  // namespace
}  // namespace weft
