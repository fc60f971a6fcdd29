// Both doors of weft.v1 have this in common, that of a fleet (control_door.h) and that of one run
// (run_door.h): how a call ends, and the calls that ask no driver.
#pragma once
#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "process/rpc.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// The version of weft.v1 that a weftd speaks.
inline constexpr char kApiVersion[] = "v1.1";

// Refusal is a stream that ends before it begins.
template <typename Message>
class Refusal final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Refusal(const absl::Status& why) { this->Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

// Finishes the call with the answer, whenever it comes.
template <typename Message>
Reply<Message> Into(grpc::ServerUnaryReactor* reactor, Message* reply) {
  return [reactor, reply](const absl::StatusOr<Message>& answer) {
    if (answer.ok()) *reply = *answer;
    reactor->Finish(ToGrpc(answer.status()));
  };
}

// InvalidArgument: the job breaks a rule; FailedPrecondition: it fits nowhere.
absl::StatusOr<v1::PlanReply> PlanFor(const v1::PlanRequest& request);

// Sets what this process logs from now on. `caller`: who says so, for the log.
v1::SetLogLevelReply SetLogLevelTo(v1::SetLogLevelRequest::Level level, const std::string& caller);

}  // namespace weft
