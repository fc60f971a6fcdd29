// The door of people and programs to a private weftd: weft.v1.Control over one Driver, for the user
// alone whose run it is. An adaptor without decisions: what the Driver is asked, and what becomes
// of its answer.
#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/driver.h"
#include "coordinator/service/answer_book.h"
#include "coordinator/service/call_limits.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {

class RunDoor final : public v1::Control::CallbackService {
 public:
  // `ids` gives the streams theirs, each once.
  RunDoor(std::string version, Driver& driver, std::atomic<int64_t>& ids);

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  Unary* Version(Context* context, const v1::VersionRequest* request,
                 v1::VersionReply* reply) override;
  Unary* Plan(Context* context, const v1::PlanRequest* request, v1::PlanReply* reply) override;
  Unary* Submit(Context* context, const v1::SubmitRequest* request,
                v1::SubmitReply* reply) override;
  Unary* List(Context* context, const v1::ListRequest* request, v1::ListReply* reply) override;
  Unary* Get(Context* context, const v1::GetRequest* request, v1::Job* reply) override;
  grpc::ServerWriteReactor<v1::WatchReply>* Watch(Context* context,
                                                  const v1::WatchRequest* request) override;
  Unary* Stop(Context* context, const v1::StopRequest* request, v1::Job* reply) override;
  Unary* Checkpoint(Context* context, const v1::CheckpointRequest* request,
                    v1::Job* reply) override;
  grpc::ServerWriteReactor<v1::LogsReply>* Logs(Context* context,
                                                const v1::LogsRequest* request) override;
  Unary* Hosts(Context* context, const v1::HostsRequest* request, v1::HostsReply* reply) override;
  Unary* SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                     v1::SetLogLevelReply* reply) override;
  // Refused, with what to do instead.
  Unary* Pause(Context* context, const v1::PauseRequest* request, v1::Job* reply) override;
  Unary* Resume(Context* context, const v1::ResumeRequest* request, v1::Job* reply) override;
  Unary* Resize(Context* context, const v1::ResizeRequest* request, v1::Job* reply) override;
  Unary* DrainHost(Context* context, const v1::DrainHostRequest* request, v1::Host* reply) override;
  Unary* UndrainHost(Context* context, const v1::UndrainHostRequest* request,
                     v1::Host* reply) override;

 private:
  // How the job stands, as a message of weft.v1.
  void AskForJob(const std::string& job_id, const Reply<v1::Job>& reply);
  // Has `make` called unless the wish was made before. Its answer ends the call.
  template <typename Request, typename Message>
  Unary* Mutate(Context* context, const char* call, const Request& request, Message* reply,
                const std::function<void(const Request&, const Reply<Message>&)>& make);
  // Asks the Driver for something by `ask`, if the job is not over, and answers with the job then.
  void Change(const std::string& job_id, const Reply<v1::Job>& reply,
              const std::function<void(const Acknowledge&)>& ask);

  const std::string version_;
  Driver& driver_;
  std::atomic<int64_t>& ids_;
  const int64_t owner_uid_;
  const std::string owner_;
  AnswerBook answers_;
  CallLimits limits_{CallLimitOptions{}};  // of this user's own readers
};

}  // namespace weft
