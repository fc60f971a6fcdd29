// ServiceOnHosts: a weftd that serves jobs over the network, with a standing agent on each of three
// hosts and people on any of them: real processes, real TLS, real links.
#pragma once
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "process/failpoint.h"
#include "tests/end_to_end/tiny_model.h"
#include "tests/hosts/hosts_run.h"
#include "tests/places.h"

namespace weft {

class ServiceOnHosts : public HostsRun {
 protected:
  using Json = nlohmann::json;
  static constexpr char kCoordinator[] = "h1:7070";
  void SetUp() override {
    HostsRun::SetUp();
    if (bed_ == nullptr) return;
    const std::string weftd = BinaryPath("/bin/weftd");
    std::string make = absl::StrCat(weftd, " authority ", ca(), " && ", Issue("server", "h1"));
    for (int host = 1; host <= 3; ++host) {
      absl::StrAppend(&make, " && ", Issue("agent", HostBed::Name(host)));
    }
    for (const char* person : {"ann", "bob", "eve"}) {
      absl::StrAppend(&make, " && ", Issue("submitter", person));
    }
    absl::StrAppend(&make, " && ", Issue("viewer", "guest"));
    const auto made = bed_->Run(1, make);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    StartWeftd();
    for (int host = 1; host <= 3; ++host) StartAgent(host);
    ASSERT_TRUE(Eventually(kPatienceS, [&] { return HostsPresent() == 3; })) << ServiceWords();
  }

  void TearDown() override {
    if (bed_ == nullptr) return;
    for (const auto& [host, agent] : agents_) {
      SignalThere(host, "weft agent --standing", SIGTERM);
      EXPECT_TRUE(agent->Wait(120).has_value()) << agent->Stderr();
    }
    SignalThere(1, "weftd --socket", SIGTERM);
    EXPECT_TRUE(weftd_->Wait(120).has_value()) << weftd_->Stderr();
    if (HasFailure()) std::fprintf(stderr, "%s\n", ServiceWords().c_str());
    agents_.clear();
    weftd_.reset();
    HostsRun::TearDown();
  }

  std::string FolderOf(int job) const {
    return absl::StrCat(bed_->shared(), "/jobs/", job, "/tiny");
  }

  std::string ca() const { return bed_->shared() + "/ca"; }
  std::string Bundle(const std::string& name) const {
    return absl::StrCat(bed_->shared(), "/", name, ".pem");
  }
  std::string Issue(const std::string& role, const std::string& name) const {
    const std::string out = role == "server" ? "server" : name;
    return absl::StrCat(BinaryPath("/bin/weftd"), " issue ", role, " --authority ", ca(), " --out ",
                        Bundle(out), " ", name);
  }

  // Ranks are told of their pace by this (tiny_model.h).
  virtual std::string Pace() const { return kPace; }
  void StartWeftd() {
    weftd_ = bed_->Start(1, {BinaryPath("/bin/weftd"), "--socket=/dev/shm/weftd.sock",
                             "--state=" + bed_->shared() + "/state", "--listen=0.0.0.0:7070",
                             "--tls=" + Bundle("server"), "--revoked=" + ca() + "/revoked"});
  }
  void StartAgent(int host) {
    agents_[host] = bed_->Start(
        host,
        {BinaryPath("/bin/weft"), "agent", "--standing",
         absl::StrCat("--coordinator=", kCoordinator), "--tls=" + Bundle(HostBed::Name(host)),
         "--name=" + HostBed::Name(host), "--slots=2", "--allow=ann", "--allow=bob", "--allow=eve"},
        {{kPauseVariable, Pace()}});
  }
  // The first process there whose command line has the words.
  void SignalThere(int host, const std::string& words, int signal) {
    bed_->Run(host,
              absl::StrCat("kill -", signal, " $(pgrep -f -- '^[^ ]*", words, "' | head -1)"));
  }

  // A verb of `weft`, as a person of that name on that host says it.
  HostBed::Answer Weft(const std::string& person, int host, const std::string& words) {
    return bed_->Run(host, absl::StrCat(BinaryPath("/bin/weft"), " ", words, " --coordinator ",
                                        kCoordinator, " --tls ", Bundle(person)));
  }
  std::string Submit(const std::string& person, int host, const std::string& job,
                     const std::string& folder) {
    const auto answer =
        Weft(person, host, absl::StrCat("submit ", job, " --json --run-folder ", folder));
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    const Json reply = Json::parse(answer.out, nullptr, false);
    return reply.is_object() ? reply.value("job_id", "") : "";
  }
  Json JobOf(const std::string& id) {
    return Json::parse(Weft("guest", 3, "status " + id + " --json").out, nullptr, false);
  }
  // A verb as weftd's own user says it, on its host.
  void Operator(const std::string& words) {
    const auto answer = bed_->Run(1, absl::StrCat(BinaryPath("/bin/weft"), " ", words,
                                                  " --coordinator unix:/dev/shm/weftd.sock"));
    EXPECT_EQ(answer.exit_code, 0) << words << ": " << answer.err;
  }
  std::vector<std::string> HostsOf(const std::string& id) {
    std::vector<std::string> hosts;
    const Json job = JobOf(id);
    if (!job.is_object()) return hosts;
    for (const Json& each : job.value("allocations", Json::array())) {
      hosts.push_back(each.value("host", ""));
    }
    return hosts;
  }
  bool Ends(const std::string& id, const std::string& phase, double timeout_s) {
    std::string last;
    const bool ended = Eventually(timeout_s, [&] {
      const Json job = JobOf(id);
      last = job.is_object() ? job.dump() : "";
      return job.is_object() && job.value("phase", "") == phase;
    });
    EXPECT_TRUE(ended) << id << ": " << last;
    return ended;
  }
  int HostsPresent() {
    const Json hosts = Json::parse(Weft("guest", 2, "hosts --json").out, nullptr, false);
    int present = 0;
    if (hosts.is_array()) {
      for (const Json& each : hosts) present += each.value("present", false) ? 1 : 0;
    }
    return present;
  }

  std::string ServiceWords() {
    std::string words = absl::StrCat("-- weftd\n", weftd_->Stderr());
    for (const auto& [host, agent] : agents_) {
      absl::StrAppend(&words, "-- agent of h", host, "\n", agent->Stderr());
    }
    return absl::StrCat(words, "-- jobs\n", Weft("guest", 1, "ps --all").out);
  }

  std::unique_ptr<Child> weftd_;
  std::map<int, std::unique_ptr<Child>> agents_;
};

}  // namespace weft
