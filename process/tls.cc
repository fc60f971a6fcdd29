#include "process/tls.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/log.h"

namespace weft {
namespace {

using grpc::experimental::CertificateVerifier;
using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::TlsCustomVerificationCheckRequest;

constexpr unsigned kLookAtBundleEveryS = 2;
constexpr char kSuitesVariable[] = "GRPC_SSL_CIPHER_SUITES";

// gRPC has checked the chain and its time, at the first handshake; this is called for a resumed
// session too.
class PeerCheck final : public ExternalCertificateVerifier {
 public:
  using Rule = std::function<absl::Status(const CertificateFacts&)>;
  explicit PeerCheck(Rule rule) : rule_(std::move(rule)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const grpc::string_ref pem = request->peer_cert();
    const absl::StatusOr<CertificateFacts> facts =
        DescribeCertificate(absl::string_view(pem.data(), pem.size()));
    absl::Status verdict = facts.status();
    if (facts.ok()) verdict = CheckTime(*facts, std::time(nullptr));
    if (verdict.ok()) verdict = rule_(*facts);
    if (!verdict.ok()) LogWarning(absl::StrCat("refused a connection: ", verdict.message()));
    if (!verdict.ok()) {
      *status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, std::string(verdict.message()));
    }
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const Rule rule_;
};

// gRPC's own list holds AEAD suites alone, and its least version is TLS 1.2; whoever runs us may
// have asked it for others.
absl::Status CheckSuites() {
  if (std::getenv(kSuitesVariable) == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kSuitesVariable, ": is set, and weft takes gRPC's AEAD suites alone; unset it"));
}

absl::Status CheckOwnTime(const TlsBundle& bundle) {
  ASSIGN_OR_RETURN(const CertificateFacts facts, DescribeCertificate(bundle.certificate));
  return CheckTime(facts, std::time(nullptr));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ListenerCredentials(
    const std::string& bundle_file, const std::string& revoked_file) {
  RETURN_IF_ERROR(CheckSuites());
  ASSIGN_OR_RETURN(const TlsBundle bundle, ReadBundle(bundle_file));
  RETURN_IF_ERROR(CheckOwnTime(bundle));
  // The three parts are in one file, whose rename changes them together; PEM readers skip what is
  // not theirs.
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          bundle_file, bundle_file, bundle_file, kLookAtBundleEveryS));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<PeerCheck>([revoked_file](const CertificateFacts& facts) {
        return CheckNotRevoked(facts, revoked_file);
      }));
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> DialCredentials(const TlsBundle& bundle) {
  RETURN_IF_ERROR(CheckSuites());
  RETURN_IF_ERROR(CheckOwnTime(bundle));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          bundle.authority,
          std::vector<grpc::experimental::IdentityKeyCertPair>{
              {.private_key = bundle.key, .certificate_chain = bundle.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);  // the check below does, by the name of the role
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<PeerCheck>([](const CertificateFacts& facts) {
        if (std::count(facts.names.begin(), facts.names.end(), kCoordinatorName) > 0) {
          return absl::OkStatus();
        }
        return absl::PermissionDeniedError(
            absl::StrCat("the certificate of ", facts.name, " is not a coordinator's"));
      }));
  return grpc::experimental::TlsCredentials(options);
}

std::optional<std::string> PeerName(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return std::nullopt;
  const std::vector<grpc::string_ref> names = auth->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.empty()) return "";  // no host's
  return std::string(names.front().data(), names.front().size());
}

absl::Status CheckPeerIs(const std::optional<std::string>& peer_name, const std::string& host) {
  if (!peer_name || *peer_name == host) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate is of ", *peer_name, ", but the agent says that it is ", host,
                   "; give it the name with `weft agent --name`, or issue it another bundle"));
}

absl::StatusOr<std::vector<CertificateFacts>> PeerCertificates(
    const grpc::ServerContextBase& context) {
  std::vector<CertificateFacts> certificates;
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr) return certificates;
  for (const grpc::string_ref& pem : auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
    ASSIGN_OR_RETURN(CertificateFacts facts,
                     DescribeCertificate(absl::string_view(pem.data(), pem.size())));
    certificates.push_back(std::move(facts));
  }
  return certificates;
}

absl::Status CheckStillWelcome(const std::vector<CertificateFacts>& certificates,
                               const std::string& revoked_file) {
  for (const CertificateFacts& facts : certificates) {
    RETURN_IF_ERROR(CheckTime(facts, std::time(nullptr)));
    RETURN_IF_ERROR(CheckNotRevoked(facts, revoked_file));
  }
  return absl::OkStatus();
}

}  // namespace weft
