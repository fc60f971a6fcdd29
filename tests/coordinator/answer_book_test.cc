#include "coordinator/service/answer_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/weft/v1/control.pb.h"

namespace weft {
namespace {

using testing::ElementsAre;

// Collects what is told, as "answer" or the status' code.
struct Heard {
  std::vector<std::string> texts;
  AnswerBook::Tell Tell() {
    return [this](const absl::StatusOr<std::string>& answer) {
      texts.push_back(answer.ok() ? *answer : absl::StatusCodeToString(answer.status().code()));
    };
  }
};

std::function<void(const AnswerBook::Tell&)> Makes(const absl::StatusOr<std::string>& answer,
                                                   int* times) {
  return [answer, times](const AnswerBook::Tell& tell) {
    ++*times;
    tell(answer);
  };
}

TEST(AnswerBook, AWishIsMadeOnceAndItsRetriesGetItsAnswer) {
  AnswerBook book(10);
  Heard heard;
  int times = 0;
  for (int i = 0; i < 3; ++i) {
    book.Take("a", "Stop 1", heard.Tell(), Makes(std::string("stopped"), &times));
  }
  EXPECT_THAT(heard.texts, ElementsAre("stopped", "stopped", "stopped"));
  EXPECT_EQ(times, 1);
  book.Take("a", "Stop 2", heard.Tell(), Makes(std::string("other"), &times));
  EXPECT_EQ(heard.texts.back(), "INVALID_ARGUMENT") << "the same id for another wish";
  book.Take("", "Stop 1", heard.Tell(), Makes(std::string("other"), &times));
  EXPECT_EQ(heard.texts.back(), "INVALID_ARGUMENT");
  book.Take(std::string(257, 'x'), "Stop 1", heard.Tell(), Makes(std::string("other"), &times));
  EXPECT_EQ(heard.texts.back(), "INVALID_ARGUMENT");
  EXPECT_EQ(times, 1);
}

TEST(AnswerBook, ARetryWaitsForTheAnswerThatIsUnderWay) {
  AnswerBook book(10);
  Heard heard;
  AnswerBook::Tell later;
  book.Take("a", "Stop", heard.Tell(), [&](const AnswerBook::Tell& tell) { later = tell; });
  int times = 0;
  book.Take("a", "Stop", heard.Tell(), Makes(std::string("twice"), &times));
  EXPECT_TRUE(heard.texts.empty());
  later(std::string("stopped"));
  EXPECT_THAT(heard.texts, ElementsAre("stopped", "stopped"));
  EXPECT_EQ(times, 0);
}

TEST(AnswerBook, AFailureIsNotKept) {
  AnswerBook book(10);
  Heard heard;
  int times = 0;
  book.Take("a", "Stop", heard.Tell(), Makes(absl::UnavailableError("full"), &times));
  book.Take("a", "Stop", heard.Tell(), Makes(std::string("stopped"), &times));
  EXPECT_THAT(heard.texts, ElementsAre("UNAVAILABLE", "stopped"));
  EXPECT_EQ(times, 2);
}

TEST(AnswerBook, KeepsOnlySoManyAnswers) {
  AnswerBook book(2);
  Heard heard;
  int times = 0;
  for (const char* id : {"a", "b", "c", "b", "a"}) {
    book.Take(id, "Stop", heard.Tell(), Makes(std::string(id), &times));
  }
  EXPECT_THAT(heard.texts, ElementsAre("a", "b", "c", "b", "a"));
  EXPECT_EQ(times, 4) << "the first was forgotten";
}

TEST(AnswerBook, TheSameFieldsAreTheSameWish) {
  v1::StopRequest one;
  one.set_request_id("a");
  v1::StopRequest other = one;
  EXPECT_EQ(AskedText("Stop", one), AskedText("Stop", other));
  EXPECT_NE(AskedText("Stop", one), AskedText("Pause", one));
  other.set_level(v1::StopRequest::NOW);
  EXPECT_NE(AskedText("Stop", one), AskedText("Stop", other));
}

}  // namespace
}  // namespace weft
