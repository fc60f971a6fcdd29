// Child: one program that a test started, with a bound on every wait. Its standard streams are a
// pipe's end (stdout) and a file (stderr), so nothing blocks and nothing is lost; its destructor
// kills what still runs. Signals go to this process alone, by pidfd, never to a name or a group.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Ended says how a process ended: exit_code, or signal if it is not 0.
struct Ended {
  int exit_code = 0;
  int signal = 0;
};

class Child {
 public:
  // Starts arguments[0]; `environment` is added to this process's, and a state folder of its own
  // beside `stdout_path`. Output goes to the two files.
  Child(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment,
        std::string stdout_path, std::string stderr_path);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  // Empty: still running after `timeout_s`.
  std::optional<Ended> Wait(double timeout_s);
  bool Running() { return !Wait(0).has_value(); }
  void Signal(int number);
  std::string Stdout() const;
  std::string Stderr() const;

 private:
  int pid_ = -1;
  int pidfd_ = -1;
  std::optional<Ended> ended_;
  std::string stdout_path_;
  std::string stderr_path_;
};

// A running process that carries NAME=value in its environment.
struct Found {
  int pid = 0;
  std::string command;  // arguments joined by spaces
};
// All of them but this process, in order of pid.
std::vector<Found> ProcessesWith(const std::string& name, const std::string& value);

// A variable of another process's environment; empty if it has none, or is gone.
std::string VariableOf(int pid, const std::string& name);

// kill(2) by pidfd, after a look that `found` is still the same program. False: it is gone.
bool KillFound(const Found& found, int number);

// A bound of waits for what comes within some seconds on an idle machine: it only ends a test that
// has failed. Two cores with two busy loops each and three other tests give a test a tenth of them.
inline constexpr double kPatienceS = 180;
// A bound of leaving, once the last word was said: whoever goes only as some patience or a lease of
// 30 s runs out has been left behind.
inline constexpr double kLeavesWithinS = 20;

// Polls until `condition` holds, at most `timeout_s`; returns whether it held. The pause between
// two looks is 5 ms, and longer after one that took long: looking takes a fifth of a processor at
// most.
template <typename Condition>
bool Eventually(double timeout_s, Condition condition);

std::string ReadText(const std::string& path);  // empty if there is no such file
// A number that whoever runs a test gives by a variable of the environment.
int NumberFromEnvironment(const char* name, int otherwise);
// Returns the seed of a test's draws and prints it as "NAME=n", which repeats them: `fixed`, unless
// the variable of that name is another number, or "random", which draws one.
unsigned SeedFromEnvironment(const char* name, unsigned fixed);
double NowSeconds();  // monotonic
void SleepSeconds(double seconds);

template <typename Condition>
bool Eventually(double timeout_s, Condition condition) {
  constexpr double kPauseS = 0.005, kLongestPauseS = 0.25, kPausePerLook = 4;
  for (const double end_s = NowSeconds() + timeout_s;;) {
    const double looks_s = NowSeconds();
    if (looks_s >= end_s) return condition();
    if (condition()) return true;
    const double took_s = NowSeconds() - looks_s;
    SleepSeconds(std::clamp(kPausePerLook * took_s, kPauseS, kLongestPauseS));
  }
}

}  // namespace weft
