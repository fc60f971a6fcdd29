// TLS between hosts: gRPC's credentials for both sides, made of a bundle (tls_bundle.h). Each side
// shows a certificate of weftd's own authority and asks for one; at least TLS 1.2, AEAD suites
// alone, no session without a look at the certificate. Safe from any thread.
#pragma once
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "process/tls_bundle.h"

namespace weft {

// The coordinator's certificate answers to this name, wherever it runs.
inline constexpr char kCoordinatorName[] = "weftd";

// For a listener. The bundle's file is looked at every few seconds, so that a renewed one is taken
// without a restart; `revoked_file` at each new connection (CheckNotRevoked). The errors of
// ReadBundle; PermissionDenied if the certificate's time is over; FailedPrecondition if the
// environment asks gRPC for other cipher suites.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ListenerCredentials(
    const std::string& bundle_file, const std::string& revoked_file);

// For somebody who dials the coordinator: a listener that does not answer to kCoordinatorName is
// refused, whoever signed its certificate. Errors as above.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> DialCredentials(const TlsBundle& bundle);

// The name in the certificate of whoever calls; nothing over a unix socket.
std::optional<std::string> PeerName(const grpc::ServerContextBase& context);

// PermissionDenied if the caller came over the network and its certificate is another host's.
absl::Status CheckPeerIs(const std::optional<std::string>& peer_name, const std::string& host);

// What the caller has shown; nothing over a unix socket. InvalidArgument if it is no certificate.
absl::StatusOr<std::vector<CertificateFacts>> PeerCertificates(
    const grpc::ServerContextBase& context);

// PermissionDenied if one of the certificates has ended, or was revoked, since it was shown.
absl::Status CheckStillWelcome(const std::vector<CertificateFacts>& certificates,
                               const std::string& revoked_file);

}  // namespace weft
