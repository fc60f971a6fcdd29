// LiveOutput: what a run says while it goes on, for hours, where a verb that answers once would
// fail: its words go to a file whose disk is full for a while, or to a terminal that does not take
// them at once. They wait, and go out in order with later ones. Whatever becomes of them, the run
// goes on, and ends as it would have. Thread-safe.
#pragma once
#include <cstddef>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>

namespace weft {

class LiveOutput final : public std::streambuf {
 public:
  // At most; of more the oldest lines are left out, and a line says so.
  static constexpr size_t kMaxWaiting = size_t{1} << 20;

  // Until its end `stream` writes to `descriptor`, flushed or line by line.
  LiveOutput(std::ostream& stream, int descriptor);
  // Tries once more. What cannot be written then is lost, which stderr is told.
  ~LiveOutput() override;
  LiveOutput(const LiveOutput&) = delete;
  LiveOutput& operator=(const LiveOutput&) = delete;

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  void LeaveOutTheOldest();
  void WriteOut();

  std::ostream& stream_;
  const int descriptor_;
  std::streambuf* const before_;
  std::mutex mutex_;  // guards the rest
  std::string waiting_;
  size_t left_out_ = 0;  // bytes of lines that were never written
  int error_ = 0;        // errno of the last attempt, 0: it has succeeded
};

}  // namespace weft
