#include "tests/tidy/rooms.h"

namespace weft {
namespace {

// Each room may include those before it.
std::vector<Room> PlanRooms() {
  const std::set<std::string> core = {"absl core"};
  std::vector<Room> rooms = {{"plan", {"plan"}, core, {}},
                             {"plan/engine", {"plan", "plan/engine"}, core, {}}};
  std::set<std::string> below = {"plan"};
  for (const char* room : {"spec", "block", "keys", "placement", "shards", "schedule", "memory",
                           "estimate", "search", "mixed", "explain"}) {
    const std::string folder = std::string("plan/") + room;
    below.insert(folder);
    if (folder == "plan/estimate") below.insert("plan/engine");
    rooms.push_back({folder, below, core, {}});
  }
  return rooms;
}

// "worker/backend" as a permission means its interfaces alone.
std::vector<Room> WorkerRooms() {
  const std::set<std::string> absl = {"absl core", "absl"};
  return {
      {"worker/backend", {"worker/backend"}, {}, {{"loader", {"plan", "plan/spec", "absl core"}}}},
      {"worker/backend/cpu",
       {"worker/backend", "worker/backend/cpu/*"},
       {"mpi", "cblas", "dnnl", "openmp"},
       {}},
      {"worker/backend/cuda", {"worker/backend", "worker/backend/cuda/*"}, {"cuda"}, {}},
      {"worker/state",
       {"plan", "plan/spec", "plan/block", "plan/shards", "plan/memory", "process", "checkpoint",
        "worker/backend", "worker/state"},
       absl,
       {}},
      {"worker/model",
       {"plan", "plan/spec", "plan/block", "plan/shards", "plan/schedule", "plan/memory", "data",
        "checkpoint", "worker/backend", "worker/state", "worker/model"},
       absl,
       {}},
      {"worker/train",
       {"plan", "plan/spec", "plan/block", "plan/shards", "plan/schedule", "plan/memory", "process",
        "data", "checkpoint", "worker/backend", "worker/state", "worker/model", "worker/train"},
       absl,
       {}},
      {"worker/links", {"plan", "plan/spec", "worker/backend", "worker/links"}, absl, {}},
      {"worker/process",
       {"plan", "plan/spec", "plan/block", "plan/memory", "text", "proto", "process", "data",
        "checkpoint", "worker/backend", "worker/state", "worker/model", "worker/train",
        "worker/links", "worker/process"},
       {"absl core", "absl", "json"},
       {{"link", {"grpc", "protobuf"}}}},
      {"worker/probe",
       {"plan", "plan/spec", "plan/block", "plan/memory", "process", "worker/backend",
        "worker/links", "worker/process", "worker/probe"},
       absl,
       {}},
      {"worker",
       {"process", "worker/backend", "worker/process", "worker/probe"},
       {},
       {{"main", {"grpc", "cli"}}}},
  };
}

std::vector<Room> LauncherRooms() {
  const std::set<std::string> absl_json = {"absl core", "absl", "json"};
  return {
      {"launcher/job_file",
       {"plan/*", "text", "process", "data/*", "checkpoint", "launcher/job_file"},
       absl_json,
       {{"yaml_tree", {"yaml"}}, {"plan_json", {"proto"}}, {"mixed_json", {"proto"}}}},
      {"launcher/machine",
       {"plan", "plan/spec", "plan/search", "text", "process", "launcher/machine"},
       absl_json,
       {}},
      {"launcher/run",
       {"plan/*", "text", "proto", "process", "data", "checkpoint", "launcher/job_file",
        "launcher/machine", "launcher/hosts", "launcher/service", "proto/weft/v1", "launcher/run"},
       {"absl core", "absl", "json", "protobuf"},
       {}},
      {"launcher/inference",
       {"plan", "plan/spec", "plan/block", "plan/memory", "text", "process", "data",
        "data/tokenizer", "checkpoint", "launcher/job_file", "launcher/machine", "launcher/run",
        "launcher/inference"},
       absl_json,
       {}},
      {"launcher/commands",
       {"plan/*", "text", "proto", "process", "data/*", "checkpoint", "launcher/job_file",
        "launcher/machine", "launcher/agent", "launcher/standing", "launcher/hosts", "launcher/run",
        "launcher/service", "launcher/slurm", "launcher/batch", "launcher/kubernetes",
        "proto/weft/v1", "launcher/inference", "launcher/commands"},
       {"absl core", "absl", "json", "cli"},
       {}},
      {"launcher/shim", {"process", "launcher/shim"}, {}, {}},
      {"launcher/hosts",
       {"plan", "plan/spec", "process", "launcher/machine", "launcher/hosts"},
       {"absl core", "absl"},
       {}},
      {"launcher/agent",
       {"plan", "plan/spec", "plan/search", "proto", "process", "data", "launcher/machine",
        "launcher/shim", "launcher/agent"},
       {"absl core", "absl", "protobuf"},
       {{"agent_link", {"grpc"}}, {"rank_relay", {"grpc"}}}},
      {"launcher/service",
       {"plan/*", "proto", "proto/weft/v1", "process", "data", "launcher/service"},
       {"absl core", "absl", "protobuf", "json"},
       {{"control_client", {"grpc"}}}},
      {"launcher/standing",
       {"plan", "proto", "text", "process", "data", "launcher/machine", "launcher/agent",
        "launcher/standing"},
       {"absl core", "absl", "protobuf", "json"},
       {{"standing_link", {"grpc"}}}},
      {"launcher",
       {"process", "launcher/machine", "launcher/commands"},
       {"absl core"},
       {{"main", {"grpc", "cli"}}}},
  };
}

std::vector<Room> SchedulerRooms() {
  return {
      {"launcher/slurm",
       {"plan", "plan/spec", "plan/search", "text", "process", "data", "launcher/machine",
        "launcher/hosts", "launcher/run", "launcher/slurm"},
       {"absl core", "json"},
       {}},
      {"launcher/batch",
       {"plan", "text", "launcher/hosts", "launcher/slurm", "launcher/batch"},
       {"absl core", "json"},
       {}},
      {"launcher/kubernetes",
       {"plan", "plan/spec", "plan/search", "launcher/machine", "launcher/hosts", "launcher/slurm",
        "launcher/kubernetes"},
       {"absl core"},
       {}},
  };
}

// Libraries of more than one program.
std::vector<Room> SharedRooms() {
  const std::set<std::string> disk = {"absl core", "absl", "json", "xxhash"};
  return {
      {"text", {"text"}, {"absl core", "json"}, {}},
      {"proto",
       {"plan", "plan/spec", "plan/keys", "text", "proto", "proto/weft/v1"},
       {"absl core", "protobuf", "json"},
       {}},
      {"process",
       {"plan", "process"},
       {"absl core", "absl"},
       {{"authority", {"openssl"}},
        {"outbox", {"grpc"}},
        {"keyed_hash", {"openssl"}},
        {"rpc", {"grpc"}},
        {"tls", {"grpc"}},
        {"tls_bundle", {"openssl"}},
        {"version", {"grpc", "protobuf", "sqlite"}}}},
      {"data", {"plan", "plan/spec", "text", "data"}, disk, {}},
      {"data/tokenizer",
       {"plan", "text", "data", "data/tokenizer"},
       {"absl core", "json"},
       {{"charsmap", {"utf8proc"}},
        {"categories", {"utf8proc"}},
        {"json_text", {"simdjson"}},
        {"normalizer", {"utf8proc"}},
        {"regex", {"pcre2"}},
        {"tokenizer", {"simdjson"}}}},
      {"data/prepare",
       {"plan", "plan/spec", "text", "process", "data", "data/tokenizer", "data/prepare"},
       disk,
       {{"byte_source", {"zlib", "zstd"}}, {"chunk_encoder", {"simdjson"}}}},
      {"checkpoint",
       {"plan", "plan/spec", "plan/block", "plan/keys", "text", "process", "data", "checkpoint"},
       disk,
       {}},
  };
}

std::vector<Room> OtherRooms() {
  return {
      {"bench",
       {"plan/*", "worker/backend", "bench"},
       {"absl core", "json", "benchmark"},
       {{"control_bench", {"cli", "absl"}},
        {"control_client", {"grpc", "process", "proto", "proto/weft/v1"}},
        {"control_mutations", {"grpc", "process"}},
        {"control_restart", {"coordinator/service"}},
        {"control_watchers", {"grpc", "process"}},
        {"fault_bench", {"cli"}},
        {"join_bench", {"cli", "absl", "grpc", "process", "proto", "proto/weft/v1"}},
        {"planner_accuracy", {"cli"}},
        {"prepare_bench", {"cli", "data/prepare"}},
        {"scaling_bench", {"cli"}},
        {"simulated_agent", {"grpc", "process", "proto"}},
        {"simulated_host", {"grpc", "process", "proto"}},
        {"timed_device", {"tests/worker"}},
        {"tokenizer_bench", {"cli", "data/tokenizer"}},
        {"train_bench", {"cli", "worker/train"}}}},
      {"coordinator/fleet", {"plan", "coordinator/fleet"}, {"absl core"}, {}},
      {"coordinator",
       {"plan/*", "proto", "process", "coordinator"},
       {"absl core", "absl", "protobuf"},
       {{"tls_door", {"grpc"}},
        {"driver", {"grpc"}},
        {"agent_door", {"grpc"}},
        {"record_file", {"sqlite", "xxhash"}}}},
      {"coordinator/service",
       {"plan/*", "text", "proto", "proto/weft/v1", "process", "coordinator", "coordinator/fleet",
        "coordinator/service"},
       {"absl core", "absl", "protobuf"},
       {{"answer_book", {"xxhash"}},
        {"authority_verbs", {"cli"}},
        {"caller", {"grpc"}},
        {"control_calls", {"grpc"}},
        {"control_door", {"grpc"}},
        {"fleet_service", {"grpc"}},
        {"logs_stream", {"grpc"}},
        {"main", {"grpc", "cli"}},
        {"offer_door", {"grpc"}},
        {"run_door", {"grpc"}},
        {"run_service", {"grpc"}}}},
  };
}

std::vector<Room> AllRooms() {
  std::vector<Room> rooms;
  for (const std::vector<Room>& some : {PlanRooms(), WorkerRooms(), LauncherRooms(),
                                        SchedulerRooms(), SharedRooms(), OtherRooms()}) {
    rooms.insert(rooms.end(), some.begin(), some.end());
  }
  return rooms;
}

}  // namespace

const std::vector<Room>& Rooms() {
  static const auto* rooms = new std::vector<Room>(AllRooms());
  return *rooms;
}

}  // namespace weft
