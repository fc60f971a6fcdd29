// The door of people and programs: weft.v1.Control. An adaptor without decisions: each call becomes
// one call of FleetDriver, whose answer becomes one message.
#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "coordinator/service/call_limits.h"
#include "coordinator/service/caller.h"
#include "coordinator/service/fleet_driver.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {

class JobsDoor final : public v1::Control::CallbackService {
 public:
  // `ids` gives the streams theirs, each once. `limits` are those of all doors, `now_ms` their
  // clock.
  JobsDoor(std::string version, FleetDriver& fleet, std::atomic<int64_t>& ids, CallLimits& limits,
           std::function<int64_t()> now_ms, CallerFinder find)
      : version_(std::move(version)),
        fleet_(fleet),
        ids_(ids),
        limits_(limits),
        now_ms_(std::move(now_ms)),
        find_(std::move(find)) {}

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
  Unary* Pause(Context* context, const v1::PauseRequest* request, v1::Job* reply) override;
  Unary* Resume(Context* context, const v1::ResumeRequest* request, v1::Job* reply) override;
  Unary* Resize(Context* context, const v1::ResizeRequest* request, v1::Job* reply) override;
  grpc::ServerWriteReactor<v1::LogsReply>* Logs(Context* context,
                                                const v1::LogsRequest* request) override;
  Unary* Hosts(Context* context, const v1::HostsRequest* request, v1::HostsReply* reply) override;
  Unary* DrainHost(Context* context, const v1::DrainHostRequest* request, v1::Host* reply) override;
  Unary* UndrainHost(Context* context, const v1::UndrainHostRequest* request,
                     v1::Host* reply) override;
  Unary* SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                     v1::SetLogLevelReply* reply) override;

 private:
  // Who calls, if that is somebody with the role or a higher one who may call once more. A call
  // that is denied is logged.
  absl::StatusOr<Caller> Admit(Context* context, Role least, const char* what) const;
  // Calls `take` with who calls and with where the answer goes, or ends the call as denied.
  template <typename Message>
  Unary* Take(Context* context, Role least, const char* what, Message* reply,
              const std::function<void(const Caller&, const Reply<Message>&)>& take) const;

  // Whether there is a plan for a size that is asked for. Waits for the fleet, and for the plan.
  absl::Status CheckResize(const Caller& caller, const v1::ResizeRequest& request) const;

  const std::string version_;
  FleetDriver& fleet_;
  std::atomic<int64_t>& ids_;
  CallLimits& limits_;
  const std::function<int64_t()> now_ms_;
  const CallerFinder find_;
};

}  // namespace weft
