#include "tests/slurm/slurm_bed.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace weft {
namespace {

constexpr double kIdleWithinS = 60;
constexpr double kIdleAgainWithinS = 20;  // a new bed takes a few seconds

constexpr const char* kSlurmPrograms[] = {"/usr/sbin/munged", "/usr/sbin/slurmctld",
                                          "/usr/sbin/slurmd", "/usr/bin/sbatch",
                                          "/usr/bin/scontrol"};

std::string Config(const std::string& folder, const std::string& more) {
  std::ostringstream text;
  text << "ClusterName=weft\nSlurmctldHost=" << HostBed::Name(SlurmBed::kHead) << "("
       << HostBed::Address(SlurmBed::kHead) << ")\n"
       << "AuthType=auth/munge\nCredType=cred/munge\nSlurmUser=root\nSlurmdUser=root\n"
       << "MpiDefault=none\nStateSaveLocation=" << folder << "/state\nSlurmdSpoolDir=" << folder
       << "/spool-%n\nSlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n"
       << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=2\n"
       << "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu\n"
       << "KillWait=30\nMessageTimeout=10\nSlurmdParameters=config_overrides\n"
       << "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1\n"
       << "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nJobCompType=jobcomp/none\n"
       << (more.find("SlurmdTimeout") == std::string::npos ? "SlurmdTimeout=60\n" : "") << more;
  for (int node = 1; node <= SlurmBed::kNodes; ++node) {
    text << "NodeName=" << HostBed::Name(node) << " NodeAddr=" << HostBed::Address(node)
         << " CPUs=" << SlurmBed::kCpus << " RealMemory=4000 Gres=gpu:8 Features=h100,ib\n";
  }
  text << "PartitionName=low Nodes=h[1-3] Default=YES PriorityTier=1 GraceTime=25 State=UP\n"
       << "PartitionName=high Nodes=h[1-3] PriorityTier=10 PreemptMode=OFF State=UP\n"
       << "PartitionName=gpu Nodes=h[1-3] PriorityTier=1 State=UP\n";
  return text.str();
}

bool IsDaemon(const std::string& line) {
  for (const char* const daemon :
       {"/usr/sbin/munged", "/usr/sbin/slurmd", "/usr/sbin/slurmctld", "slurmctld: slurmscriptd"}) {
    if (line.rfind(daemon, 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::string SlurmBed::Missing() {
  for (const char* program : kSlurmPrograms) {
    if (access(program, X_OK) != 0) return std::string(program) + " is not installed";
  }
  return HostBed::Missing();
}

SlurmBed::SlurmBed(const std::string& more)
    : hosts_(std::make_unique<HostBed>(kHead)), folder_(hosts_->shared() + "/.slurm") {
  WriteFiles(more);
  for (int host = 1; host <= kHead; ++host) StartMunge(host);
  Daemon(kHead, {"/usr/sbin/slurmctld", "-D", "-c"});
  for (int node = 1; node <= kNodes; ++node) StartNode(node);
  const bool idle = Eventually(kIdleWithinS, [&] { return NodesAreIdle(); });
  if (!idle) throw std::runtime_error("Slurm's nodes do not become idle:\n" + Logs());
  hosts_->Remember();
}

bool SlurmBed::NodesAreIdle() {
  const HostBed::Answer nodes = hosts_->Run(kHead, "sinfo -h -N -t idle -p low -o %n");
  return std::count(nodes.out.begin(), nodes.out.end(), '\n') == kNodes;
}

SlurmBed::~SlurmBed() = default;

void SlurmBed::WriteFiles(const std::string& more) {
  for (const char* name : {"", "/state", "/etc", "/spool-h1", "/spool-h2", "/spool-h3"}) {
    std::filesystem::create_directories(folder_ + name);
  }
  // Slurm counts the files of GPUs, and asks no more of them.
  for (int gpu = 0; gpu < 8; ++gpu) std::ofstream(folder_ + "/gpu" + std::to_string(gpu)) << "";
  std::ofstream(folder_ + "/etc/slurm.conf") << Config(folder_, more);
  std::ofstream(folder_ + "/etc/gres.conf")
      << "NodeName=h[1-3] Name=gpu File=" << folder_ << "/gpu[0-7]\n";
  // It counts where `more` has TopologyPlugin=topology/tree.
  std::ofstream(folder_ + "/etc/topology.conf")
      << "SwitchName=s1 Nodes=h[1,3]\nSwitchName=s2 Nodes=h2\nSwitchName=s0 Switches=s[1-2]\n";
  std::ofstream(folder_ + "/munge.key") << std::string(128, 'k');
  chmod((folder_ + "/munge.key").c_str(), 0400);
}

void SlurmBed::Daemon(int host, const std::vector<std::string>& command) {
  daemons_.push_back(hosts_->Start(host, command));
}

// Slurm looks for its socket and for slurm.conf where the package has them.
void SlurmBed::StartMunge(int host) {
  const HostBed::Answer made =
      hosts_->Run(host, "mount --bind " + folder_ + "/etc /etc/slurm && mkdir -m 0755 /run/munge");
  if (made.exit_code != 0) throw std::runtime_error("no /etc/slurm: " + made.err);
  Daemon(host, {"/usr/sbin/munged", "--foreground", "--force", "--key-file", folder_ + "/munge.key",
                "--socket", "/run/munge/munge.socket.2", "--pid-file", "/run/munge/pid",
                "--log-file", "/run/munge/log", "--seed-file", "/run/munge/seed"});
  const bool up = Eventually(
      kPatienceS, [&] { return hosts_->Run(host, "munge -n >/dev/null").exit_code == 0; });
  if (!up) throw std::runtime_error("munge does not answer: " + daemons_.back()->Stderr());
}

void SlurmBed::StartNode(int node) {
  Daemon(node, {"/usr/sbin/slurmd", "-D", "-N", HostBed::Name(node)});
}

void SlurmBed::KillSlurmd(int node) {
  const HostBed::Answer killed =
      hosts_->Run(node, "kill -9 $(pgrep -f '^/usr/sbin/slurmd ') && echo done");
  EXPECT_EQ(killed.out, "done\n") << killed.err;
}

void SlurmBed::KillNode(int node) {
  const HostBed::Answer killed = hosts_->Run(
      node,
      "pkill -9 -x 'slurmd|slurmstepd|slurm_script|orted|mpirun|weftd?|weft-shim|weft-worker'; rm "
      "-rf /dev/shm/weft-*");
  EXPECT_EQ(killed.exit_code, 0) << killed.err;
}

std::string SlurmBed::Head(const std::string& command) {
  HostBed::Answer answer = hosts_->Run(kHead, command);
  EXPECT_EQ(answer.exit_code, 0) << command << ": " << answer.out << answer.err;
  while (!answer.out.empty() && answer.out.back() == '\n') answer.out.pop_back();
  return answer.out;
}

std::string SlurmBed::JobField(const std::string& job, const std::string& field) {
  std::istringstream words(hosts_->Run(kHead, "scontrol show job -o " + job).out);
  for (std::string word; words >> word;) {
    if (word.rfind(field + "=", 0) == 0) return word.substr(field.size() + 1);
  }
  return "";
}

std::string SlurmBed::AwaitState(const std::string& job, const std::vector<std::string>& states,
                                 double timeout_s) {
  std::string state;
  Eventually(timeout_s, [&] {
    state = JobField(job, "JobState");
    SleepSeconds(0.05);
    return std::find(states.begin(), states.end(), state) != states.end();
  });
  return state;
}

std::string SlurmBed::Logs() const {
  std::string text;
  for (const std::unique_ptr<Child>& daemon : daemons_) {
    const std::string said = daemon->Stderr();
    text += "--\n" + said.substr(said.size() > 3000 ? said.size() - 3000 : 0);
  }
  return text;
}

void SlurmBed::ExpectNothingLeft() {
  for (int host = 1; host <= kHead; ++host) {
    std::vector<std::string> left;
    Eventually(kLeavesWithinS, [&] {
      left = hosts_->Processes(host);
      left.erase(std::remove_if(left.begin(), left.end(), IsDaemon), left.end());
      return left.empty();
    });
    for (const std::string& line : left) {
      ADD_FAILURE() << HostBed::Name(host) << " still runs " << line;
    }
    hosts_->ExpectNoFiles(host);
  }
}

std::string SlurmBed::Reset() {
  const bool idle = Eventually(kIdleAgainWithinS, [&] {
    hosts_->Run(kHead, "scancel --user=root --state=PENDING; scancel --user=root");
    return hosts_->Run(kHead, "squeue -h").out.empty() && NodesAreIdle();
  });
  if (!idle) return "its nodes are not idle: " + hosts_->Run(kHead, "squeue; sinfo -N").out;
  return hosts_->Reset();
}

}  // namespace weft
