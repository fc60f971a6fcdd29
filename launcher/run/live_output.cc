#include "launcher/run/live_output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"

namespace weft {

LiveOutput::LiveOutput(std::ostream& stream, int descriptor)
    : stream_(stream), descriptor_(descriptor), before_(stream.rdbuf()) {
  stream_.flush();
  stream_.rdbuf(this);
}

LiveOutput::~LiveOutput() {
  WriteOut();
  stream_.rdbuf(before_);
  const bool nobody_reads = error_ == EPIPE;
  if (nobody_reads || (waiting_.empty() && left_out_ == 0)) return;
  std::cerr << "weft: " << waiting_.size() + left_out_
            << " bytes of the output could not be written: "
            << strerror(error_ == 0 ? ENOSPC : error_) << "\n";
}

LiveOutput::int_type LiveOutput::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof()))
    return traits_type::not_eof(character);
  const char one = traits_type::to_char_type(character);
  xsputn(&one, 1);
  return character;
}

std::streamsize LiveOutput::xsputn(const char* text, std::streamsize size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.append(text, static_cast<size_t>(size));
  if (waiting_.size() > kMaxWaiting) {
    WriteOut();
    LeaveOutTheOldest();
  }
  return size;
}

int LiveOutput::sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  WriteOut();
  return 0;  // a stream that has failed would say nothing any more
}

// Whole lines, and half of all: it is not done again at each word.
void LiveOutput::LeaveOutTheOldest() {
  if (waiting_.size() <= kMaxWaiting) return;
  size_t end = waiting_.find('\n', waiting_.size() / 2);
  end = end == std::string::npos ? waiting_.size() : end + 1;
  left_out_ += end;
  waiting_ =
      absl::StrCat("weft: ", left_out_, " bytes are left out here, which could not be written\n",
                   waiting_.substr(end));
}

void LiveOutput::WriteOut() {
  while (!waiting_.empty()) {
    const ssize_t written = write(descriptor_, waiting_.data(), waiting_.size());
    if (written < 0 && errno == EINTR) continue;
    error_ = written < 0 ? errno : 0;
    if (error_ == EPIPE) return waiting_.clear();
    if (written <= 0) return;
    waiting_.erase(0, static_cast<size_t>(written));
  }
  left_out_ = 0;
}

}  // namespace weft
