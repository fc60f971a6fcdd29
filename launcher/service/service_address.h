// Where the weftd is that people's commands speak to: a service, or a run's own. Pure.
#pragma once
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "process/tls_bundle.h"

namespace weft {

inline constexpr char kServiceVariable[] = "WEFT_COORDINATOR";
inline constexpr char kServiceBundleVariable[] = "WEFT_TLS";
// Where a weftd that is installed as a service listens.
inline constexpr char kServiceSocket[] = "/run/weft/weftd.sock";

struct ServiceAddress {
  std::string target;  // "unix:/path" or "HOST:PORT"
  BundleSource bundle = {};
  bool is_run = false;  // it is a run's own weftd, of the user alone whose run it is
};

// A person's words: options first, then variables; empty where nothing was said.
struct ServiceWords {
  std::string coordinator = {};
  std::string tls = {};
};

// `variable` returns one of the environment's, empty if it is not set; `exists` tells of a path.
// InvalidArgument, with the cure: no address is given, or it is none.
absl::StatusOr<ServiceAddress> FindService(const ServiceWords& words,
                                           const std::function<std::string(const char*)>& variable,
                                           const std::function<bool(const std::string&)>& exists);

// The private weftd of a run, which listens on that socket. InvalidArgument: the path is relative.
absl::StatusOr<ServiceAddress> RunAddress(const std::string& socket);

}  // namespace weft
