// TlsBundle is what one side of a connection between hosts shows and believes: its private key, its
// certificate and the authority that both sides trust, one after the other in one PEM file (0600).
// weft's authority issues it (authority.h). Plain values and functions over OpenSSL,
// safe from any thread; tls.h makes gRPC's credentials of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// PEM texts.
struct TlsBundle {
  std::string key;
  std::string certificate;
  std::string authority;
};

// The text of a bundle's file.
std::string BundleText(const TlsBundle& bundle);

// InvalidArgument, naming `where`: a part is missing or damaged, the key is not the certificate's,
// or the authority has not signed it.
absl::StatusOr<TlsBundle> ParseBundle(absl::string_view text, absl::string_view where);

// The same of a file. NotFound, or PermissionDenied if it is another user's or others may read it.
absl::StatusOr<TlsBundle> ReadBundle(const std::string& path);

// BundleSource says where a bundle comes from: a file, which is read for each new connection, so
// that a renewed one is taken; or else a text that somebody has handed over.
struct BundleSource {
  std::string file = {};
  std::string text = {};
  bool empty() const { return file.empty() && text.empty(); }
};
absl::StatusOr<TlsBundle> LoadBundle(const BundleSource& source);

// CertificateFacts is what weft asks of a certificate.
struct CertificateFacts {
  std::string serial;                   // lower-case hexadecimal
  std::string name;                     // the subject's common name
  std::string role = {};                // its organizational unit: authority.h's RoleName
  std::vector<std::string> names = {};  // those that it may answer to: DNS names and addresses
  int64_t begins_s = 0;                 // Unix time
  int64_t ends_s = 0;
};
// InvalidArgument if `pem` holds no certificate.
absl::StatusOr<CertificateFacts> DescribeCertificate(absl::string_view pem);

// PermissionDenied, with the cure, if `now_s` is not within the certificate's time.
absl::Status CheckTime(const CertificateFacts& facts, int64_t now_s);

// PermissionDenied if the file lists the serial, or cannot be read: one line for each revoked
// certificate, which begins with its serial. An empty path revokes nothing.
absl::Status CheckNotRevoked(const CertificateFacts& facts, const std::string& revoked_file);

}  // namespace weft
