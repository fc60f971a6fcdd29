#include "process/authority.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "plan/errors.h"
#include "process/tls.h"
#include "process/tls_bundle.h"

namespace weft {
namespace {

constexpr int64_t kAuthorityDays = 3650;
constexpr int64_t kDayS = 86400;
constexpr int kSerialBytes = 16;
constexpr size_t kLongestName = 64;  // what a common name may have

struct Freed {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIGNUM* number) const { BN_free(number); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

// OpenSSL has run out of memory or randomness: its reason.
absl::Status OpensslError(absl::string_view what) {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", text));
}

std::string Drain(BIO* bio) {
  char* data = nullptr;
  const int64_t size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

std::string KeyText(EVP_PKEY* key) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return Drain(bio.get());
}

std::string CertificateText(X509* certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return Drain(bio.get());
}

bool Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, of one length
  const Owned<BIGNUM> number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

// A certificate without extensions and signature. Null on failure.
// `unit`: the subject's organizational unit; empty: none.
Owned<X509> Blank(const std::string& name, absl::string_view unit, EVP_PKEY* key, int64_t now_s,
                  int64_t days) {
  Owned<X509> certificate(X509_new());
  if (!certificate) return nullptr;
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const auto* bytes = reinterpret_cast<const unsigned char*>(name.data());
  const bool made =
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 && SetSerial(certificate.get()) &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now_s - kClockSkewS) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now_s + days * kDayS) != nullptr &&
      X509_set_pubkey(certificate.get(), key) == 1 &&
      X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, bytes,
                                 static_cast<int>(name.size()), -1, 0) == 1 &&
      (unit.empty() ||
       X509_NAME_add_entry_by_NID(subject, NID_organizationalUnitName, MBSTRING_UTF8,
                                  reinterpret_cast<const unsigned char*>(unit.data()),
                                  static_cast<int>(unit.size()), -1, 0) == 1);
  if (!made) return nullptr;
  return certificate;
}

bool IsAddress(const std::string& name) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str());
  ERR_clear_error();
  ASN1_OCTET_STRING_free(address);
  return address != nullptr;
}

absl::Status CheckName(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '-' || c == '_' || c == ':';
                    });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("name \"", name,
                                                 "\": is not a host's; use at most ", kLongestName,
                                                 " letters, digits, '.', '-', '_', or an address"));
}

// The file is new, this user's alone, and durable.
absl::Status WriteNew(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be made"));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  const int why = errno;
  close(file);
  if (!written) return absl::ErrnoToStatus(why, absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

// One write at the end of the file: lines of several processes do not mix.
absl::Status AppendLine(const std::string& path, const std::string& line) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  const std::string text = line + "\n";
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  const int why = errno;
  close(file);
  if (!written) return absl::ErrnoToStatus(why, absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

std::string TextOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<Authority> Authority::Create(const std::string& folder, int64_t now_s) {
  if (mkdir(folder.c_str(), 0700) != 0) {
    if (errno == EEXIST) {
      return absl::FailedPreconditionError(absl::StrCat(
          "authority ", folder, ": is there already; name another folder, or use that one"));
    }
    return absl::ErrnoToStatus(errno, absl::StrCat("authority ", folder, ": cannot be made"));
  }
  ASSIGN_OR_RETURN(const Authority made, CreateUnkept(now_s));
  RETURN_IF_ERROR(WriteNew(folder + "/issued", ""));
  RETURN_IF_ERROR(WriteNew(folder + "/revoked", ""));
  RETURN_IF_ERROR(WriteNew(folder + "/ca.crt", made.certificate_));
  RETURN_IF_ERROR(WriteNew(folder + "/ca.key", made.key_));  // last: it is whole now
  return Open(folder);
}

absl::StatusOr<Authority> Authority::CreateUnkept(int64_t now_s) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (!key) return OpensslError("make a key");
  const Owned<X509> certificate = Blank("weft authority", "", key.get(), now_s, kAuthorityDays);
  const bool made =
      certificate &&
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) == 1 &&
      Extend(certificate.get(), certificate.get(), NID_basic_constraints,
             "critical,CA:TRUE,pathlen:0") &&
      Extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
      Extend(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0;
  if (!made) return OpensslError("make the authority's certificate");
  Authority authority("");
  authority.key_ = KeyText(key.get());
  authority.certificate_ = CertificateText(certificate.get());
  return authority;
}

absl::StatusOr<Authority> Authority::Open(const std::string& folder) {
  Authority authority(folder);
  struct stat entry = {};
  if (stat((folder + "/ca.key").c_str(), &entry) != 0) {
    return absl::NotFoundError(
        absl::StrCat("authority ", folder, ": is none; `weftd authority ", folder, "` makes one"));
  }
  if (entry.st_uid != geteuid() || (entry.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("authority ", folder, ": its key is not this user's alone; chown ", geteuid(),
                     " and chmod 600 it, or make another authority"));
  }
  authority.key_ = TextOfFile(folder + "/ca.key");
  authority.certificate_ = TextOfFile(folder + "/ca.crt");
  return authority;
}

absl::string_view RoleName(BundleRole role) {
  switch (role) {
    case BundleRole::kAgent:
      return "agent";
    case BundleRole::kServer:
      return "server";
    case BundleRole::kViewer:
      return "viewer";
    case BundleRole::kSubmitter:
      return "submitter";
    case BundleRole::kOperator:
      return "operator";
  }
  return "";
}

absl::StatusOr<std::string> Authority::Issue(BundleRole role, const std::vector<std::string>& names,
                                             int64_t now_s, int64_t days) const {
  std::set<std::string> all(names.begin(), names.end());
  if (role == BundleRole::kServer) all.insert(kCoordinatorName);
  for (const std::string& name : all) RETURN_IF_ERROR(CheckName(name));
  if (role != BundleRole::kServer && names.size() != 1) {
    return absl::InvalidArgumentError(role == BundleRole::kAgent
                                          ? "an agent has exactly one name, its host's"
                                          : "a person has exactly one name, the user's");
  }
  const std::string subject = role == BundleRole::kServer ? kCoordinatorName : names.front();
  const std::string alternatives = absl::StrJoin(all, ",", [](std::string* out, const auto& name) {
    absl::StrAppend(out, IsAddress(name) ? "IP:" : "DNS:", name);
  });
  const Owned<BIO> key_text(BIO_new_mem_buf(key_.data(), static_cast<int>(key_.size())));
  const Owned<EVP_PKEY> signer(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  const Owned<BIO> text(
      BIO_new_mem_buf(certificate_.data(), static_cast<int>(certificate_.size())));
  const Owned<X509> issuer(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!signer || !issuer) {
    return absl::InvalidArgumentError(
        absl::StrCat("authority ", folder_, ": its key or certificate is damaged; make another"));
  }
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (!key) return OpensslError("make a key");
  const Owned<X509> certificate = Blank(subject, RoleName(role), key.get(), now_s, days);
  const bool made =
      certificate &&
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get())) == 1 &&
      Extend(certificate.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      Extend(certificate.get(), issuer.get(), NID_key_usage, "critical,digitalSignature") &&
      Extend(certificate.get(), issuer.get(), NID_ext_key_usage,
             role == BundleRole::kServer ? "serverAuth" : "clientAuth") &&
      Extend(certificate.get(), issuer.get(), NID_authority_key_identifier, "keyid:always") &&
      Extend(certificate.get(), issuer.get(), NID_subject_alt_name, alternatives) &&
      X509_sign(certificate.get(), signer.get(), EVP_sha256()) > 0;
  if (!made) return OpensslError("make a certificate");
  const TlsBundle bundle{KeyText(key.get()), CertificateText(certificate.get()), certificate_};
  if (folder_.empty()) return BundleText(bundle);
  ASSIGN_OR_RETURN(const CertificateFacts facts, DescribeCertificate(bundle.certificate));
  RETURN_IF_ERROR(AppendLine(
      folder_ + "/issued",
      absl::StrCat(facts.serial, " ", RoleName(role), " ", subject, " ",
                   absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(facts.ends_s),
                                    absl::UTCTimeZone()))));
  return BundleText(bundle);
}

absl::StatusOr<int> Authority::Revoke(const std::string& name) const {
  int count = 0;
  for (const absl::string_view line : absl::StrSplit(TextOfFile(folder_ + "/issued"), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() != 4 || words[2] != name) continue;
    RETURN_IF_ERROR(AppendLine(revoked_file(), std::string(line)));
    ++count;
  }
  if (count > 0) return count;
  return absl::NotFoundError(absl::StrCat("authority ", folder_, ": has issued nothing to \"", name,
                                          "\"; the file `issued` in it lists the names"));
}

}  // namespace weft
