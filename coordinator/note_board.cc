#include "coordinator/note_board.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status NoteBoard::Put(const proto::Note& note, int from, int world_size) {
  if (note.topic().size() > kMaxTopicBytes || note.value().size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a note of rank ", from, " has ", note.topic().size(), " bytes of topic and ",
        note.value().size(), " of value; at most ", kMaxTopicBytes, " and ", kMaxValueBytes));
  }
  for (const int rank : note.to()) {
    if (rank >= 0 && rank < world_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("note ", note.topic(), " of rank ", from,
                                                   " is to rank ", rank, ", who is not among the ",
                                                   world_size, " of the generation"));
  }
  const auto known = known_.find({note.topic(), from});
  if (known != known_.end()) {
    if (notes_[known->second].value() == note.value()) return absl::OkStatus();  // repeated
    return absl::InvalidArgumentError(absl::StrCat("rank ", from, " has another note ",
                                                   note.topic(), " already; it has one per topic"));
  }
  const auto bytes = static_cast<int64_t>(note.topic().size() + note.value().size());
  if (bytes_ + bytes > kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the notes of this generation are more than ",
                                                     kMaxBytes, " bytes with that of rank ", from));
  }
  bytes_ += bytes;
  const size_t index = notes_.size();
  proto::Note& kept = notes_.emplace_back();
  kept.set_topic(note.topic());
  kept.set_from(from);
  kept.set_value(note.value());
  known_[{note.topic(), from}] = index;
  for (const int rank : note.to()) inboxes_[rank].push_back(index);
  for (int rank = 0; note.to().empty() && rank < world_size; ++rank) {
    inboxes_[rank].push_back(index);
  }
  return absl::OkStatus();
}

proto::Notes NoteBoard::For(int rank, size_t told) const {
  proto::Notes notes;
  const auto inbox = inboxes_.find(rank);
  if (inbox == inboxes_.end()) return notes;
  int64_t bytes = 0;
  for (size_t i = told; i < inbox->second.size() && bytes < kMaxOrderBytes; ++i) {
    const proto::Note& note = notes_[inbox->second[i]];
    bytes += static_cast<int64_t>(note.topic().size() + note.value().size());
    *notes.add_notes() = note;
  }
  return notes;
}

}  // namespace weft
