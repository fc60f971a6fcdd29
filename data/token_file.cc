#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "data/megatron_index.h"
#include "data/token_judge.h"
#include "plan/errors.h"
#include "xxhash.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int64_t kHashedWhole = int64_t{16} << 20;
constexpr int64_t kHashedBlocks = 64;
constexpr int64_t kHashedBlockBytes = int64_t{64} << 10;

// Mapped bytes are not aligned for anything: always copy out.
template <typename T>
T Load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A MappedFile is a mapping that ends with it.
class MappedFile {
 public:
  MappedFile(const void* bytes, int64_t size) : bytes_(bytes), size_(size) {}
  ~MappedFile() {
    if (bytes_ != nullptr) munmap(const_cast<void*>(bytes_), static_cast<size_t>(size_));
  }
  MappedFile(MappedFile&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), size_(other.size_) {}
  MappedFile& operator=(MappedFile&&) = delete;

  absl::string_view bytes() const {
    return {static_cast<const char*>(bytes_), static_cast<size_t>(size_)};
  }
  // The mapping becomes the caller's to end.
  const uint8_t* Release() { return static_cast<const uint8_t*>(std::exchange(bytes_, nullptr)); }

 private:
  const void* bytes_;
  int64_t size_;
};

// Opens a regular file for reading. The caller closes it.
absl::StatusOr<int> OpenRegular(const std::string& path, int64_t* size) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot stat"));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a ", S_ISDIR(info.st_mode) ? "folder" : "device, pipe or socket",
                     ", expected a file of tokens"));
  }
  *size = info.st_size;
  return fd;
}

absl::StatusOr<MappedFile> MapRegular(const std::string& path, const std::string& expected) {
  int64_t size = 0;
  ASSIGN_OR_RETURN(const int fd, OpenRegular(path, &size));
  if (size == 0) {
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the file is empty, expected ", expected));
  }
  void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot map ", size, " bytes"));
  }
  return MappedFile(mapped, size);
}

}  // namespace

std::string MegatronIndexOf(const std::string& path) {
  return absl::StrCat(absl::StripSuffix(path, ".bin"), ".idx");
}

TokenEncoding EncodingOf(const JobSpec& job) {
  return {job.data.format, job.data.dtype, job.model.vocab_size};
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           const TokenEncoding& encoding) {
  ASSIGN_OR_RETURN(MappedFile mapped,
                   MapRegular(path, absl::StrCat("tokens (format ", WordOf(encoding.format), ")")));
  const int64_t size = std::ssize(mapped.bytes());
  std::unique_ptr<TokenFile> file(new TokenFile);
  file->path_ = path;
  file->mapped_ = mapped.Release();
  file->mapped_bytes_ = size;
  RETURN_IF_ERROR(file->ReadHeader(encoding));
  if (encoding.format == TokenFormat::kBytes) return file;
  const absl::Span<const uint8_t> ids(file->mapped_ + file->header_bytes_,
                                      static_cast<size_t>(size - file->header_bytes_));
  const std::string why = WhyNotIds(ids, file->item_bytes_, encoding.vocab_size);
  if (!why.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  return file;
}

TokenFile::~TokenFile() {
  if (mapped_ == nullptr) return;
  munmap(const_cast<uint8_t*>(mapped_), static_cast<size_t>(mapped_bytes_));
}

absl::Status TokenFile::ReadHeader(const TokenEncoding& encoding) {
  if (encoding.format == TokenFormat::kNanogpt) return ReadNoHeader(encoding);
  if (encoding.format == TokenFormat::kBytes) {
    tokens_ = mapped_bytes_;
    return absl::OkStatus();
  }
  const bool is_megatron = encoding.format == TokenFormat::kMegatron;
  RETURN_IF_ERROR(is_megatron ? ReadIndexBeside() : ReadLlmcHeader());
  return CheckDtype(encoding, is_megatron ? "its .idx" : "its header");
}

absl::Status TokenFile::CheckDtype(const TokenEncoding& encoding, absl::string_view where) const {
  const TokenDtype found = item_bytes_ == 2 ? TokenDtype::kUint16 : TokenDtype::kUint32;
  if (!encoding.dtype || *encoding.dtype == found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", where, " says ", WordOf(found),
                                                 ", data.dtype says ", WordOf(*encoding.dtype),
                                                 "; leave data.dtype out"));
}

absl::Status TokenFile::ReadIndexBeside() {
  const std::string path = MegatronIndexOf(path_);
  ASSIGN_OR_RETURN(const MappedFile idx, MapRegular(path, "an .idx of Megatron-LM"));
  const absl::StatusOr<MegatronIndex> index = ReadMegatronIndex(idx.bytes(), mapped_bytes_);
  if (!index.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", index.status().message()));
  }
  item_bytes_ = index->item_bytes;
  tokens_ = index->tokens;
  return absl::OkStatus();
}

absl::Status TokenFile::ReadNoHeader(const TokenEncoding& encoding) {
  const std::string other = OtherKindOfFile({mapped_, static_cast<size_t>(mapped_bytes_)});
  if (!other.empty()) return absl::InvalidArgumentError(absl::StrCat(path_, ": ", other));
  if (!encoding.dtype && encoding.vocab_size > kMost16BitIds) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": has no header, and 16 bits cannot hold the ids of a vocabulary of ",
                     encoding.vocab_size, "; say how wide its ids are: data.dtype uint32, or ",
                     "uint16 if all are below ", kMost16BitIds, " (weft eval: --dtype)"));
  }
  const TokenDtype dtype = encoding.dtype.value_or(TokenDtype::kUint16);
  item_bytes_ = dtype == TokenDtype::kUint32 ? 4 : 2;
  if (mapped_bytes_ % item_bytes_ != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": found ", mapped_bytes_, " bytes, expected ",
                     item_bytes_ == 2 ? "an even number" : "a multiple of 4",
                     " (nanogpt tokens of ", WordOf(dtype), " take ", item_bytes_, " bytes each)"));
  }
  tokens_ = mapped_bytes_ / item_bytes_;
  return absl::OkStatus();
}

absl::Status TokenFile::ReadLlmcHeader() {
  if (mapped_bytes_ < kLlmcHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": found ", mapped_bytes_,
                                                   " bytes, expected a llm.c header of ",
                                                   kLlmcHeaderBytes, " bytes and then tokens"));
  }
  const int32_t magic = Load<int32_t>(mapped_);
  const int32_t version = Load<int32_t>(mapped_ + 4);
  const int32_t tokens = Load<int32_t>(mapped_ + 8);
  if (magic != kLlmcGpt2Magic && magic != kLlmcLlamaMagic) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": 0: found magic ", magic, ", expected ",
                                                   kLlmcGpt2Magic, " or ", kLlmcLlamaMagic,
                                                   " (llm.c tokens)"));
  }
  const int32_t expected_version = magic == kLlmcGpt2Magic ? 1 : 7;
  if (version != expected_version) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": 4: found version ", version,
                                                   ", expected ", expected_version, " with magic ",
                                                   magic));
  }
  item_bytes_ = magic == kLlmcGpt2Magic ? 2 : 4;
  if (tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": 8: found ", tokens, " tokens, expected at least 1"));
  }
  header_bytes_ = kLlmcHeaderBytes;
  tokens_ = tokens;
  const int64_t expected_bytes = kLlmcHeaderBytes + tokens_ * item_bytes_;  // < 2^34
  if (mapped_bytes_ != expected_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": found ", mapped_bytes_,
                                                   " bytes, expected ", expected_bytes, " for ",
                                                   tokens, " tokens of ", item_bytes_, " bytes"));
  }
  return absl::OkStatus();
}

void TokenFile::Read(int64_t first, absl::Span<int32_t> out) const {
  const int64_t count = static_cast<int64_t>(out.size());
  CHECK(first >= 0 && count <= tokens_ && first <= tokens_ - count);
  const uint8_t* from = mapped_ + header_bytes_ + first * item_bytes_;
  for (int32_t& token : out) {
    if (item_bytes_ == 1) {
      token = *from;
    } else if (item_bytes_ == 2) {
      token = Load<uint16_t>(from);
    } else {
      constexpr uint32_t kMax = std::numeric_limits<int32_t>::max();
      token = static_cast<int32_t>(std::min(Load<uint32_t>(from), kMax));
    }
    from += item_bytes_;
  }
}

std::string TokenFile::Fingerprint() const {
  const bool is_whole = mapped_bytes_ <= kHashedWhole;
  const int64_t blocks = is_whole ? 1 : kHashedBlocks;
  const int64_t block_bytes = is_whole ? mapped_bytes_ : kHashedBlockBytes;
  XXH3_state_t* state = XXH3_createState();
  CHECK(state != nullptr);
  XXH3_64bits_reset(state);
  for (int64_t block = 0; block < blocks; ++block) {
    // The last one ends with the file. The quotient first: sizes times 64 may not fit.
    const int64_t last = mapped_bytes_ - block_bytes;
    const int64_t first = block == 0 ? 0 : block == blocks - 1 ? last : last / (blocks - 1) * block;
    XXH3_64bits_update(state, mapped_ + first, static_cast<size_t>(block_bytes));
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return absl::StrFormat("%d:%016x", mapped_bytes_, hash);
}

}  // namespace weft
