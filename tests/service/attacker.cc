// Calls weftd as an agent would, with whatever it is told to say, and prints what comes of it: "let
// in", or the status. For tests that run it as other users and with other certificates.
//
//   weft_attacker TARGET attach|offer [tls=FILE] [job=] [allocation=] [machine=] [host=] [token=]
//   weft_attacker TARGET end ... pid= generation= rank_host= rank_pid= step=
//
// "end": that the job's agent is back, and its rank 0 through after that step.
#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <cstdio>
#include <map>
#include <string>

#include "process/rpc.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"

namespace weft {
namespace {

constexpr int64_t kCallMs = 60000;

using Words = std::map<std::string, std::string>;

int64_t NumberIn(Words& words, const std::string& name) {
  return std::atoll(words[name].c_str());
}

proto::AgentReport HelloOf(Words& words) {
  proto::AgentReport report;
  proto::Hello& hello = *report.mutable_hello();
  hello.set_version(Version());
  hello.set_wire_version(kWireVersion);
  hello.set_pid(words.count("pid") > 0 ? NumberIn(words, "pid") : 1);
  hello.set_generation(NumberIn(words, "generation"));
  hello.set_slots(2);
  hello.mutable_host_has()->set_cores(2);
  hello.set_host(words["host"]);
  hello.set_machine(words["machine"]);
  hello.set_job_id(words["job"]);
  hello.set_allocation(NumberIn(words, "allocation"));
  hello.set_token(words["token"]);
  return report;
}

proto::OfferReport OfferOf(Words& words) {
  proto::OfferReport report;
  proto::HostOffer& offer = *report.mutable_offer();
  offer.set_wire_version(kWireVersion);
  offer.set_host(words["host"]);
  offer.set_machine(words["machine"]);
  offer.set_slots(2);
  offer.set_gives_tokens(true);
  offer.add_allows("*");
  return report;
}

// Says the one report; whoever is not let in hears the reason in place of a welcome.
template <typename Stream, typename Report, typename Order>
absl::Status Say(grpc::ClientContext& context, Stream& stream, const Report& report, Order order) {
  stream.Write(report);
  while (stream.Read(&order)) {
    if (!order.has_welcome()) continue;
    context.TryCancel();
    stream.Finish();
    return absl::OkStatus();
  }
  return FromGrpc(stream.Finish());
}

// A report of the rank lies in the agent's stream.
proto::AgentReport FromRank(Words& words, proto::WorkerReport said) {
  said.set_generation(NumberIn(words, "generation"));
  proto::AgentReport report;
  report.mutable_from_rank()->set_stream(1);
  said.SerializeToString(report.mutable_from_rank()->mutable_report());
  return report;
}

// Returns with what the rank's stream is ended by.
template <typename Stream>
absl::Status SayTheEnd(grpc::ClientContext& context, Stream& stream, Words& words) {
  stream.Write(HelloOf(words));
  proto::WorkerReport registered, finished;
  registered.mutable_register_()->set_host(words["rank_host"]);
  registered.mutable_register_()->set_pid(NumberIn(words, "rank_pid"));
  registered.mutable_register_()->set_version(Version());
  registered.mutable_register_()->set_world_size(2);
  registered.set_sequence(1);
  finished.mutable_finished()->set_step(NumberIn(words, "step"));
  finished.set_sequence(2);
  proto::AgentOrder order;
  while (stream.Read(&order)) {
    if (order.has_welcome()) {
      stream.Write(FromRank(words, registered));
      stream.Write(FromRank(words, finished));
    } else if (order.has_hang_up()) {
      context.TryCancel();
      stream.Finish();
      return {static_cast<absl::StatusCode>(order.hang_up().code()), order.hang_up().message()};
    }
  }
  return FromGrpc(stream.Finish());
}

absl::Status Attack(const std::string& target, const std::string& call, Words& words) {
  const auto channel = OpenChannel(target, {.file = words["tls"]}, Listens::kService);
  if (!channel.ok()) return channel.status();
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  if (call == "offer") {
    const auto stub = proto::FleetLink::NewStub(*channel);
    return Say(context, *stub->Offer(&context), OfferOf(words), proto::OfferOrder());
  }
  const auto stub = proto::AgentLink::NewStub(*channel);
  if (call == "end") return SayTheEnd(context, *stub->Attach(&context), words);
  return Say(context, *stub->Attach(&context), HelloOf(words), proto::AgentOrder());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  weft::Words words;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const absl::Status status = weft::Attack(argv[1], argv[2], words);
  std::printf("%s\n", status.ok() ? "let in" : status.ToString().c_str());
  return status.ok() ? 1 : 0;
}
