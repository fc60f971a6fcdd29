#include "data/prepare/byte_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr int kPollMs = 50;
constexpr int kMostWindowLog = 27;  // what `zstd -d` takes without --long
constexpr int kGzipOnly = 16;       // zlib: added to the window's bits

}  // namespace

struct ByteSource::Unpacking {
  z_stream gzip = {};
  ZSTD_DStream* zstd = nullptr;
  bool is_within = false;  // a member or frame has begun and not ended
  bool has_gzip = false;

  Unpacking() = default;
  ~Unpacking() {
    if (has_gzip) inflateEnd(&gzip);
    ZSTD_freeDStream(zstd);
  }
  Unpacking(const Unpacking&) = delete;
  Unpacking& operator=(const Unpacking&) = delete;
};

ByteSource::ByteSource(std::string path, int fd, const std::atomic<bool>* stop)
    : path_(std::move(path)), fd_(fd), stop_(stop) {}

ByteSource::~ByteSource() {
  close(fd_);
}

absl::Status ByteSource::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(
      path_, ": ", what, " at byte ",
      stored_bytes_ - static_cast<int64_t>(stored_.size()) + static_cast<int64_t>(stored_at_),
      " of it; fetch or pack it again"));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path,
                                                             const std::atomic<bool>* stop) {
  const bool is_stdin = path == kStandardInput;
  const int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                          : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  std::unique_ptr<ByteSource> source(new ByteSource(path, fd, stop));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot stat"));
  const bool is_read = S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
                       (is_stdin && S_ISCHR(info.st_mode));
  if (!is_read) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a ", S_ISDIR(info.st_mode) ? "folder" : "device", ", expected a file of text"));
  }
  RETURN_IF_ERROR(source->Begin());
  return source;
}

absl::Status ByteSource::Begin() {
  while (stored_.size() < 8 && !stored_ends_) RETURN_IF_ERROR(Fill());
  const absl::StatusOr<Packing> packing = PackingOf(path_, stored_);
  if (!packing.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", packing.status().message()));
  }
  packing_ = *packing;
  unpacking_ = std::make_unique<Unpacking>();
  if (packing_ == Packing::kGzip) {
    CHECK(inflateInit2(&unpacking_->gzip, MAX_WBITS + kGzipOnly) == Z_OK);
    unpacking_->has_gzip = true;
  } else if (packing_ == Packing::kZstd) {
    unpacking_->zstd = ZSTD_createDStream();
    CHECK(unpacking_->zstd != nullptr);
    ZSTD_DCtx_setParameter(unpacking_->zstd, ZSTD_d_windowLogMax, kMostWindowLog);
  }
  return absl::OkStatus();
}

// Reads some more of the file behind what is there.
absl::Status ByteSource::Fill() {
  stored_.erase(0, stored_at_);
  stored_at_ = 0;
  const size_t before = stored_.size();
  stored_.resize(before + kReadBytes);
  while (true) {
    if (stop_ != nullptr && *stop_) {
      stored_.resize(before);
      return absl::CancelledError("stopped");
    }
    pollfd ready = {fd_, POLLIN, 0};
    if (poll(&ready, 1, kPollMs) == 0) continue;
    const ssize_t got = read(fd_, stored_.data() + before, kReadBytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    const int error = errno;
    stored_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0) return absl::ErrnoToStatus(error, absl::StrCat(path_, ": cannot be read"));
    stored_ends_ = got == 0;
    stored_bytes_ += got;
    return absl::OkStatus();
  }
}

absl::Status ByteSource::Append(size_t most, std::string* out) {
  const size_t before = out->size();
  out->resize(before + most);
  size_t got = 0;
  while (got < most && !at_end_) {
    if (stored_at_ == stored_.size() && !stored_ends_) {
      const absl::Status filled = Fill();
      if (!filled.ok()) {
        out->resize(before + got);
        return filled;
      }
    }
    const absl::StatusOr<size_t> some = Unpack(out->data() + before + got, most - got);
    if (!some.ok()) {
      out->resize(before + got);
      return some.status();
    }
    got += *some;
  }
  out->resize(before + got);
  return absl::OkStatus();
}

absl::StatusOr<size_t> ByteSource::Unpack(char* to, size_t most) {
  if (packing_ == Packing::kGzip) return Gunzip(to, most);
  if (packing_ == Packing::kZstd) return Unzstd(to, most);
  const size_t some = std::min(most, stored_.size() - stored_at_);
  std::copy_n(stored_.data() + stored_at_, some, to);
  stored_at_ += some;
  at_end_ = stored_ends_ && stored_at_ == stored_.size();
  return some;
}

absl::StatusOr<size_t> ByteSource::Gunzip(char* to, size_t most) {
  Unpacking& state = *unpacking_;
  const size_t there = stored_.size() - stored_at_;
  if (there == 0 && stored_ends_) {
    if (state.is_within) return Damaged("the gzip file ends within a member,");
    at_end_ = true;
    return 0;
  }
  if (!state.is_within) {
    CHECK(inflateReset(&state.gzip) == Z_OK);
    state.is_within = true;
  }
  state.gzip.next_in = reinterpret_cast<Bytef*>(stored_.data() + stored_at_);
  state.gzip.avail_in = static_cast<uInt>(there);
  state.gzip.next_out = reinterpret_cast<Bytef*>(to);
  state.gzip.avail_out = static_cast<uInt>(most);
  const int code = inflate(&state.gzip, Z_NO_FLUSH);
  stored_at_ += there - state.gzip.avail_in;
  if (code == Z_STREAM_END) {
    state.is_within = false;
  } else if (code != Z_OK && code != Z_BUF_ERROR) {
    return Damaged("the gzip file is damaged");
  }
  return most - state.gzip.avail_out;
}

absl::StatusOr<size_t> ByteSource::Unzstd(char* to, size_t most) {
  Unpacking& state = *unpacking_;
  ZSTD_inBuffer in = {stored_.data() + stored_at_, stored_.size() - stored_at_, 0};
  ZSTD_outBuffer out = {to, most, 0};
  if (in.size == 0 && stored_ends_ && !state.is_within) {
    at_end_ = true;
    return 0;
  }
  const size_t left = ZSTD_decompressStream(state.zstd, &out, &in);
  stored_at_ += in.pos;
  if (ZSTD_isError(left) != 0) {
    return Damaged(absl::StrCat("the zstd file cannot be unpacked: ", ZSTD_getErrorName(left)));
  }
  if (in.size == 0 && out.pos == 0 && stored_ends_) {
    return Damaged("the zstd file ends within a frame,");
  }
  state.is_within = left != 0;
  return out.pos;
}

bool ByteSource::is_seekable() const {
  struct stat info = {};
  return packing_ == Packing::kNone && fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
}

absl::Status ByteSource::Seek(int64_t byte) {
  if (lseek(fd_, byte, SEEK_SET) != byte) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot go to byte ", byte));
  }
  stored_.clear();
  stored_at_ = 0;
  stored_bytes_ = byte;
  stored_ends_ = false;
  at_end_ = false;
  return absl::OkStatus();
}

}  // namespace weft
