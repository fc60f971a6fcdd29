#include "process/tls_bundle.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kLargestBundle = 1 << 20;

struct Freed {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

Owned<BIO> Reader(absl::string_view text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> CertificateOf(absl::string_view pem) {
  Owned<X509> certificate(PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

// The PEM blocks of the text, each with its marks and a line's end.
std::vector<std::string> Blocks(absl::string_view text) {
  std::vector<std::string> blocks;
  std::string block;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "-----BEGIN ")) block.clear();
    absl::StrAppend(&block, line, "\n");
    if (absl::StartsWith(line, "-----END ")) blocks.push_back(std::exchange(block, {}));
  }
  return blocks;
}

int64_t UnixTime(const ASN1_TIME* time) {
  std::tm broken = {};
  if (ASN1_TIME_to_tm(time, &broken) != 1) return 0;
  return timegm(&broken);
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string AddressText(const ASN1_OCTET_STRING* address) {
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  char text[INET6_ADDRSTRLEN] = {};
  if (family == AF_INET6 && ASN1_STRING_length(address) != 16) return {};
  inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof(text));
  return text;
}

std::vector<std::string> AlternativeNames(const X509* certificate) {
  std::vector<std::string> texts;
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) texts.push_back(TextOf(name->d.dNSName));
    if (name->type == GEN_IPADD) texts.push_back(AddressText(name->d.iPAddress));
  }
  return texts;
}

std::string SubjectPart(const X509* certificate, int part) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, part, -1);
  if (at < 0) return {};
  return TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

absl::StatusOr<std::string> ReadPrivate(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a pipe: no wait
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("bundle ", path));
  struct stat entry = {};
  absl::Status status;
  std::string text;
  if (fstat(file, &entry) != 0 || !S_ISREG(entry.st_mode) || entry.st_size > kLargestBundle) {
    status = absl::InvalidArgumentError(
        absl::StrCat("bundle ", path, ": is not a bundle; `weftd issue` makes one"));
  } else if (entry.st_uid != geteuid() || (entry.st_mode & 077) != 0) {
    status = absl::PermissionDeniedError(
        absl::StrCat("bundle ", path, ": holds a private key, and is not this user's alone; chown ",
                     geteuid(), " and chmod 600 it, or issue another one"));
  } else {
    text.resize(static_cast<size_t>(entry.st_size));
    const ssize_t got = read(file, text.data(), text.size());
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  }
  close(file);
  if (!status.ok()) return status;
  return text;
}

}  // namespace

std::string BundleText(const TlsBundle& bundle) {
  return absl::StrCat(bundle.key, bundle.certificate, bundle.authority);
}

absl::StatusOr<TlsBundle> ParseBundle(absl::string_view text, absl::string_view where) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("bundle ", where, ": ", what, "; issue another one with `weftd issue`"));
  };
  TlsBundle bundle;
  for (const std::string& block : Blocks(text)) {
    std::string& part = absl::StrContains(block, "PRIVATE KEY-----") ? bundle.key
                        : bundle.certificate.empty()                 ? bundle.certificate
                                                                     : bundle.authority;
    if (!part.empty()) return wrong("has more than a key, a certificate and an authority");
    part = block;
  }
  if (bundle.key.empty()) return wrong("has no private key");
  if (bundle.certificate.empty()) return wrong("has no certificate");
  if (bundle.authority.empty()) return wrong("has no authority after the certificate");
  const Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(Reader(bundle.key).get(), nullptr, nullptr, nullptr));
  const Owned<X509> certificate = CertificateOf(bundle.certificate);
  const Owned<X509> authority = CertificateOf(bundle.authority);
  const bool read = key && certificate && authority;
  const bool matches = read && X509_check_private_key(certificate.get(), key.get()) == 1;
  const bool is_signed =
      read && X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1;
  ERR_clear_error();
  if (!read) return wrong("is damaged");
  if (!matches) return wrong("its key is not its certificate's");
  if (!is_signed) return wrong("its authority has not signed its certificate");
  return bundle;
}

absl::StatusOr<TlsBundle> ReadBundle(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadPrivate(path));
  return ParseBundle(text, path);
}

absl::StatusOr<TlsBundle> LoadBundle(const BundleSource& source) {
  if (!source.file.empty()) return ReadBundle(source.file);
  return ParseBundle(source.text, "that was handed over");
}

absl::StatusOr<CertificateFacts> DescribeCertificate(absl::string_view pem) {
  const Owned<X509> certificate = CertificateOf(pem);
  if (!certificate) return absl::InvalidArgumentError("the certificate is damaged");
  CertificateFacts facts;
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate.get());
  for (int i = 0; i < ASN1_STRING_length(serial); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", ASN1_STRING_get0_data(serial)[i]);
    facts.serial += digits;
  }
  facts.name = SubjectPart(certificate.get(), NID_commonName);
  facts.role = SubjectPart(certificate.get(), NID_organizationalUnitName);
  facts.names = AlternativeNames(certificate.get());
  facts.begins_s = UnixTime(X509_get0_notBefore(certificate.get()));
  facts.ends_s = UnixTime(X509_get0_notAfter(certificate.get()));
  return facts;
}

absl::Status CheckTime(const CertificateFacts& facts, int64_t now_s) {
  if (now_s >= facts.begins_s && now_s <= facts.ends_s) return absl::OkStatus();
  const bool early = now_s < facts.begins_s;
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate of ", facts.name, early ? " begins at " : " ended at ",
      absl::FormatTime(absl::FromUnixSeconds(early ? facts.begins_s : facts.ends_s)),
      early ? ": compare the hosts' clocks" : ": issue another one with `weftd issue`"));
}

absl::Status CheckNotRevoked(const CertificateFacts& facts, const std::string& revoked_file) {
  if (revoked_file.empty()) return absl::OkStatus();
  FILE* file = std::fopen(revoked_file.c_str(), "re");
  if (file == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(
        revoked_file, ": cannot be read, so nobody is let in: ", std::strerror(errno)));
  }
  bool revoked = false;
  char line[512];
  while (!revoked && std::fgets(line, sizeof(line), file) != nullptr) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
    revoked = !words.empty() && words.front() == facts.serial;
  }
  std::fclose(file);
  if (!revoked) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ", facts.name, ", serial ", facts.serial, ", was revoked"));
}

}  // namespace weft
