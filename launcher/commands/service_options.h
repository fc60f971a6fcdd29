// The verbs that speak to a weftd that serves jobs have this in common: where it is, what becomes
// of an answer.
#pragma once
#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/service/control_client.h"
#include "launcher/service/message_json.h"
#include "launcher/service/service_address.h"

namespace weft {

// Adds --coordinator and --tls.
void AddServiceOptions(CLI::App& verb, ServiceWords* words);
// Adds --json.
void AddJsonOption(CLI::App& verb, bool* json);
// Adds the job, "job-17"; anything else is refused as usage.
CLI::Option* AddJobArgument(CLI::App& verb, std::string* job);
// Adds a job, or a run that runs (named_job.h).
CLI::Option* AddNamedJobArgument(CLI::App& verb, std::string* job);

// Whether a person names a weftd, by option or variable; else a site's scheduler may be meant.
bool NamesAWeftd(const ServiceWords& words);

absl::StatusOr<std::unique_ptr<ControlClient>> OpenService(const ServiceWords& words);
// Returns the user who runs the weftd of that socket, where that is not this one. Nothing over the
// network.
std::optional<uid_t> OtherUserOfService(const ServiceWords& words);

// The jobs that `keep` takes, newest first, at most `most` of them, from as many pages as it takes.
absl::StatusOr<std::vector<v1::Job>> ListJobs(ControlClient& client, v1::ListRequest request,
                                              int64_t most,
                                              const std::function<bool(const v1::Job&)>& keep);

// It does what Fail does, for what weftd has answered: a job in the wrong phase is no job that does
// not fit.
int FailCall(const absl::Status& status);

// Columns of the terminal, at least those of kTableColumns.
int TableWidth();

// Prints `text`, or the message with --json.
int PrintAnswer(bool json, const google::protobuf::Message& message, const std::string& text);

// 0, 1 for FAILED, 130 for CANCELLED.
int ExitCodeOfPhase(const std::string& phase);

}  // namespace weft
