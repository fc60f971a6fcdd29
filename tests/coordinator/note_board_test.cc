#include "coordinator/note_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

proto::Note NoteOf(const std::string& topic, const std::string& value,
                   const std::vector<int>& to = {}) {
  proto::Note note;
  note.set_topic(topic);
  note.set_value(value);
  for (const int rank : to) note.add_to(rank);
  return note;
}

std::vector<std::string> Short(const proto::Notes& notes) {
  std::vector<std::string> texts;
  for (const proto::Note& note : notes.notes()) {
    texts.push_back(absl::StrCat(note.topic(), " of ", note.from(), ": ", note.value()));
  }
  return texts;
}

TEST(NoteBoard, TellsEachReceiverWhatIsForItOnce) {
  NoteBoard board;
  ASSERT_TRUE(board.Put(NoteOf("device", "a", {0}), 1, 4).ok());
  ASSERT_TRUE(board.Put(NoteOf("id", "xyz"), 0, 4).ok());
  ASSERT_TRUE(board.Put(NoteOf("device", "b", {0, 2}), 3, 4).ok());
  EXPECT_THAT(Short(board.For(0, 0)),
              ElementsAre("device of 1: a", "id of 0: xyz", "device of 3: b"));
  EXPECT_THAT(Short(board.For(0, 2)), ElementsAre("device of 3: b"));
  EXPECT_THAT(Short(board.For(0, 3)), IsEmpty());
  EXPECT_THAT(Short(board.For(1, 0)), ElementsAre("id of 0: xyz"));
  EXPECT_THAT(Short(board.For(2, 0)), ElementsAre("id of 0: xyz", "device of 3: b"));
}

TEST(NoteBoard, TakesARepetitionForNothingNew) {
  NoteBoard board;
  ASSERT_TRUE(board.Put(NoteOf("id", "x"), 0, 2).ok());
  EXPECT_TRUE(board.Put(NoteOf("id", "x"), 0, 2).ok());
  EXPECT_TRUE(board.Put(NoteOf("id", "y"), 1, 2).ok());
  EXPECT_THAT(Short(board.For(1, 0)), ElementsAre("id of 0: x", "id of 1: y"));
  const absl::Status other = board.Put(NoteOf("id", "z"), 0, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(other));
  EXPECT_THAT(other.message(), HasSubstr("rank 0 has another note id already"));
}

TEST(NoteBoard, RefusesStrangersAndWhatIsTooLong) {
  NoteBoard board;
  EXPECT_THAT(board.Put(NoteOf("id", "x", {1, 2}), 0, 2).message(), HasSubstr("to rank 2"));
  EXPECT_THAT(board.Put(NoteOf("id", "x", {-1}), 0, 2).message(), HasSubstr("to rank -1"));
  EXPECT_TRUE(board.Put(NoteOf("id", std::string(NoteBoard::kMaxValueBytes, 'x')), 0, 2).ok());
  EXPECT_THAT(
      board.Put(NoteOf("b", std::string(NoteBoard::kMaxValueBytes + 1, 'x')), 0, 2).message(),
      HasSubstr("4097 of value"));
  EXPECT_THAT(board.Put(NoteOf(std::string(65, 't'), "x"), 0, 2).message(),
              HasSubstr("65 bytes of topic"));
  EXPECT_EQ(board.For(1, 0).notes_size(), 1);
}

// 20,000 ranks say where they are to one.
TEST(NoteBoard, CutsAFloodIntoOrdersOfBoundedSizeAndEndsIt) {
  NoteBoard board;
  const std::string value(NoteBoard::kMaxValueBytes - 4, 'v');
  int kept = 0;
  absl::Status status;
  while (status.ok() && kept < 20000) {
    status = board.Put(NoteOf("full", value, {0}), kept, 20000);
    if (status.ok()) ++kept;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(kept, NoteBoard::kMaxBytes / static_cast<int64_t>(NoteBoard::kMaxValueBytes));
  size_t told = 0;
  for (int order = 0; order < 1000; ++order) {
    const proto::Notes notes = board.For(0, told);
    if (notes.notes().empty()) break;
    EXPECT_LE(notes.ByteSizeLong(), NoteBoard::kMaxOrderBytes + (int64_t{1} << 17));
    EXPECT_EQ(notes.notes(0).from(), static_cast<int>(told));
    told += static_cast<size_t>(notes.notes_size());
  }
  EXPECT_EQ(told, static_cast<size_t>(kept));
}

}  // namespace
}  // namespace weft
