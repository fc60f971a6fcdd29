#include "bench/control_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/simulated_agent.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "proto/job_text.h"

namespace weft {

absl::StatusOr<std::unique_ptr<v1::Control::Stub>> ConnectControl(const std::string& target) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(target));
  return v1::Control::NewStub(channel);
}

absl::StatusOr<double> WaitForControl(const std::string& target, double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  while (SecondsSince(start) < limit_s) {
    const auto control = ConnectControl(target);
    grpc::ClientContext context;
    SetDeadline(context, 1000);
    v1::VersionReply reply;
    if (control.ok() && (*control)->Version(&context, {}, &reply).ok()) return SecondsSince(start);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("weftd does not serve within ", limit_s, " s; see its log"));
}

v1::SubmitRequest SmallSubmission(const std::string& request_id, const std::string& run_folder) {
  v1::SubmitRequest request;
  request.set_request_id(request_id);
  request.set_name("small");
  v1::Submission& submission = *request.mutable_submission();
  submission.set_job(JobText(SmallJob(1, 1)));
  submission.set_run_folder(run_folder);
  submission.mutable_run()->set_id("0123456789abcdef");
  return request;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ValueAtShare(std::vector<double> values, double rank) {
  const auto at = std::min<size_t>(values.size() - 1,
                                   static_cast<size_t>(rank * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace weft
