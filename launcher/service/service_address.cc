#include "launcher/service/service_address.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "process/rpc.h"

namespace weft {
namespace {

absl::StatusOr<std::string> TargetOf(const std::string& text, const std::string& source) {
  if (absl::StartsWith(text, "unix:/")) return text;
  if (absl::StartsWith(text, "/")) return absl::StrCat("unix:", text);
  if (!absl::StartsWith(text, "unix:") && ParseAddress(text).ok()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": ", text,
                   " is no address; use unix:/path/of/weftd.sock, or HOST:PORT "
                   "and --tls BUNDLE"));
}

}  // namespace

absl::StatusOr<ServiceAddress> FindService(const ServiceWords& words,
                                           const std::function<std::string(const char*)>& variable,
                                           const std::function<bool(const std::string&)>& exists) {
  std::string text = words.coordinator;
  std::string source = "--coordinator";
  if (text.empty()) {
    text = variable(kServiceVariable);
    source = kServiceVariable;
  }
  if (text.empty()) {
    if (!exists(kServiceSocket)) {
      return absl::InvalidArgumentError(
          absl::StrCat("no weftd is named and ", kServiceSocket,
                       " is not there; give --coordinator ADDRESS, or "
                       "set ",
                       kServiceVariable, ", or start weftd as a service (docs/service.md)"));
    }
    text = kServiceSocket;
  }
  const absl::StatusOr<std::string> target = TargetOf(text, source);
  if (!target.ok()) return target.status();
  ServiceAddress address{*target};
  if (!absl::StartsWith(*target, "unix:")) {
    address.bundle.file = words.tls.empty() ? variable(kServiceBundleVariable) : words.tls;
    if (address.bundle.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": ", text,
                       " is off this host, where only TLS is spoken; give --tls BUNDLE, or set ",
                       kServiceBundleVariable));
    }
  }
  return address;
}

absl::StatusOr<ServiceAddress> RunAddress(const std::string& socket) {
  const absl::StatusOr<std::string> target = UnixTarget(socket);
  if (!target.ok()) return target.status();
  return ServiceAddress{.target = *target, .is_run = true};
}

}  // namespace weft
