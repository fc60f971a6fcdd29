// KeptBed has the bed of a suite of tests: it is built for the first of them and serves the next
// one as long as tests pass and leave it as it was built. What a failed test has done to a bed
// nobody knows, so the next test has a new one, as it has where Reset says that the old one has
// changed. One thread.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

namespace weft {

// Bed: built of a Key, with `std::string Reset()`, which says why it can be used no more.
template <typename Bed, typename Key>
class KeptBed {
 public:
  // The one of this process. TakeDown has to be called before it ends.
  static KeptBed& OfProcess() {
    static auto* const kept = new KeptBed;
    return *kept;
  }

  // For a test to begin with.
  Bed* Take(const Key& key) {
    if (bed_ != nullptr && key != key_) bed_.reset();
    if (bed_ == nullptr) bed_ = std::make_unique<Bed>(key);
    key_ = key;
    return bed_.get();
  }

  // A test's last words.
  void GiveBack() {
    if (bed_ == nullptr) return;
    const std::string changed =
        ::testing::Test::HasFailure() ? "the test has failed" : bed_->Reset();
    if (changed.empty()) return;
    std::printf("the next test has another bed: %s\n", changed.c_str());
    bed_.reset();
  }

  // A suite's last words.
  void TakeDown() { bed_.reset(); }

 private:
  std::unique_ptr<Bed> bed_;
  Key key_ = {};
};

}  // namespace weft
