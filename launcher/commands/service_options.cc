#include "launcher/commands/service_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/commands/commands.h"
#include "launcher/run/terminal.h"
#include "launcher/service/job_view.h"
#include "launcher/service/message_json.h"
#include "launcher/service/text_table.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kPageSize = 1000;
constexpr int kMostPages = 1000;  // a weftd that always has another page has lost count

}  // namespace

void AddServiceOptions(CLI::App& verb, ServiceWords* words) {
  verb.add_option("--coordinator", words->coordinator,
                  "unix:<path of weftd's socket>, or HOST:PORT; default: WEFT_COORDINATOR, else "
                  "the service of this host");
  verb.add_option("--tls", words->tls, "bundle for HOST:PORT; default: WEFT_TLS");
}

void AddJsonOption(CLI::App& verb, bool* json) {
  verb.add_flag("--json", *json, "print for programs");
}

CLI::Option* AddJobArgument(CLI::App& verb, std::string* job) {
  return verb.add_option("job", *job, "a job of weftd's, as weft ps lists them: job-17")
      ->check([](const std::string& text) {
        return IsJobId(text) ? std::string()
                             : absl::StrCat(text, " is no job; use job-17, as weft ps lists them");
      });
}

CLI::Option* AddNamedJobArgument(CLI::App& verb, std::string* job) {
  return verb.add_option("job", *job,
                         "a job of weftd's, as weft ps lists them: job-17; else a run folder or "
                         "its job file, while it runs");
}

bool NamesAWeftd(const ServiceWords& words) {
  return !words.coordinator.empty() || std::getenv(kServiceVariable) != nullptr;
}

namespace {

absl::StatusOr<ServiceAddress> AddressOf(const ServiceWords& words) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const auto exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  return FindService(words, variable, exists);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlClient>> OpenService(const ServiceWords& words) {
  ASSIGN_OR_RETURN(const ServiceAddress address, AddressOf(words));
  return ControlClient::Open(address);
}

std::optional<uid_t> OtherUserOfService(const ServiceWords& words) {
  const absl::StatusOr<ServiceAddress> address = AddressOf(words);
  if (!address.ok()) return std::nullopt;
  absl::string_view path = address->target;
  struct stat socket = {};
  if (!absl::ConsumePrefix(&path, "unix:") || stat(std::string(path).c_str(), &socket) != 0 ||
      socket.st_uid == geteuid()) {
    return std::nullopt;
  }
  return socket.st_uid;
}

absl::StatusOr<std::vector<v1::Job>> ListJobs(ControlClient& client, v1::ListRequest request,
                                              int64_t most,
                                              const std::function<bool(const v1::Job&)>& keep) {
  std::vector<v1::Job> jobs;
  request.set_page_size(kPageSize);
  for (int page = 0; page < kMostPages; ++page) {
    ASSIGN_OR_RETURN(const v1::ListReply reply, client.List(request));
    for (const v1::Job& job : reply.jobs()) {
      if (keep(job)) jobs.push_back(job);
      if (static_cast<int64_t>(jobs.size()) >= most) return jobs;
    }
    if (reply.next_page_token().empty()) break;
    request.set_page_token(reply.next_page_token());
  }
  return jobs;
}

int FailCall(const absl::Status& status) {
  const int code = Fail(status);
  return absl::IsFailedPrecondition(status) ? kExitFailed : code;
}

int TableWidth() {
  return std::max(kTableColumns, TerminalColumns());
}

int PrintAnswer(bool json, const google::protobuf::Message& message, const std::string& text) {
  std::cout << (json ? absl::StrCat(MessageJson(message), "\n") : text);
  return kExitOk;
}

int ExitCodeOfPhase(const std::string& phase) {
  if (phase == "FAILED") return kExitFailed;
  return phase == "CANCELLED" ? kExitInterrupted : kExitOk;
}

}  // namespace weft
