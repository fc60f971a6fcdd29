// A sentence with the cure comes of what kubectl says against a manifest.
#include "launcher/kubernetes/kubectl.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(KubectlFailure, SaysWhatToDo) {
  JobSpec job;
  job.name = "tiny";
  struct Case {
    const char* said;
    absl::StatusCode code;
    const char* message;
  };
  for (const Case& each : {
           Case{"The connection to the server localhost:8080 was refused - did you specify the "
                "right host or port?",
                absl::StatusCode::kUnavailable,
                "no Kubernetes answers where kubectl looks for one; look at `kubectl config "
                "current-context`"},
           Case{
               "The Job \"tiny\" is invalid: spec.template: Invalid value: ...: field is immutable",
               absl::StatusCode::kInvalidArgument,
               "Kubernetes has a job tiny already; once it is over, or to end it: kubectl delete "
               "job tiny"},
           Case{"Error from server (NotFound): namespaces \"x\" not found",
                absl::StatusCode::kInvalidArgument,
                "cluster.namespace: there is no such namespace; `kubectl get namespaces` lists "
                "them"},
           Case{"error: unable to recognize \"STDIN\": no matches for kind \"JobSet\" in version "
                "\"jobset.x-k8s.io/v1alpha2\"",
                absl::StatusCode::kInvalidArgument,
                "cluster.jobset: the cluster has no JobSet; use false, or have it installed"},
           Case{"a\nerror: something else\n", absl::StatusCode::kUnknown,
                "kubectl does not take the job: error: something else"},
       }) {
    const absl::Status status = KubectlFailure(each.said, job);
    EXPECT_EQ(status.code(), each.code) << each.said;
    EXPECT_EQ(status.message(), each.message);
  }
}

}  // namespace
}  // namespace weft
