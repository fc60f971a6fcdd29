// PreparedFiles: the files that preparing writes, aside until they are whole. Beside OUTPUT.bin
// grows the folder OUTPUT.preparing/:
//
//   tokens      what becomes OUTPUT.bin
//   lengths     i32 a document, in tokens: OUTPUT.idx is made of it
//   state.json  how far both are good; renamed into place after both are on the disk, so that a
//               killed process loses what came after it and nothing else
//   lock        flock of the one process that works
//
// At the end tokens, index and a record of the work are renamed to OUTPUT.bin, OUTPUT.idx and
// OUTPUT.prepared.json, in this order: with the record all is there. The folder is this user's
// alone, and no link in it is followed: others may write where the output lies. One thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/prepare/chunk_encoder.h"
#include "data/prepare/prepared.h"

namespace weft {

// The folder of unfinished work is the output's name and this.
inline constexpr char kFolderEnding[] = ".preparing";

// Returns the path of the tokens of unfinished work.
std::string UnfinishedTokens(const std::string& output);

struct PreparedPlace {
  std::string output;  // without .bin
  TokenOutput format = TokenOutput::kMegatron;
  int64_t item_bytes = 2;
  int64_t seq_len = 0;
  bool may_replace = false;         // what is there already, and work of another kind
  bool begin_anew = false;          // unfinished work is not gone on with
  bool is_of_cache = false;         // nobody else may write to the files, whatever the umask
  std::optional<gid_t> group = {};  // of a cache: may read them
};

// Returns the counts of the record, if OUTPUT's files are there and are of this very work; nullopt:
// nothing is there, or what is there may be replaced. AlreadyExists: something else is.
absl::StatusOr<std::optional<PrepareCounts>> FindPrepared(const PreparedPlace& place,
                                                          const std::string& work);

class PreparedFiles {
 public:
  // Goes on where such work was left, if the inputs had this stamp then, or begins. Unavailable:
  // another process is at it; AlreadyExists: other work lies there and may not be replaced;
  // PermissionDenied: the folder is another user's; DataLoss: what was left is damaged; else what
  // the disk says.
  static absl::StatusOr<std::unique_ptr<PreparedFiles>> Open(const PreparedPlace& place,
                                                             const std::string& work,
                                                             const std::string& stamp);
  ~PreparedFiles();
  PreparedFiles(const PreparedFiles&) = delete;
  PreparedFiles& operator=(const PreparedFiles&) = delete;

  const PrepareState& state() const { return state_; }
  // InvalidArgument, and nothing was appended: the format cannot hold it. Of a document that has a
  // bad part nothing stays.
  absl::Status Append(const EncodedChunk& chunk);
  // Says whether the chunk is more of a document that a bad part before has put out.
  bool is_dropping(const EncodedChunk& chunk) const { return state_.is_dropping && !chunk.begins; }
  // All that was appended will be there after a crash. After an error of the disk nobody knows what
  // is there: then this does nothing, and a later process goes on from the commit before.
  absl::Status Commit();
  // Puts whole files in their places. `record`: what stands in OUTPUT.prepared.json beside the work
  // and the counts. The folder is gone then.
  absl::Status Publish(const nlohmann::ordered_json& record);
  // Removes the folder and the work in it.
  void Discard();

  int64_t bytes() const;  // of OUTPUT.bin
  int64_t bytes_since_commit() const { return bytes_since_commit_; }

 private:
  explicit PreparedFiles(PreparedPlace place);
  std::string Inside(const char* name) const;
  absl::Status OpenFolder();
  absl::Status Lock();
  absl::Status ReadState(const std::string& work, const std::string& stamp);
  void BeginAnew();
  absl::Status OpenFiles();
  int OpenInside(const char* name, int flags) const;
  bool IsInside(const char* name) const;
  absl::Status DiskFailed(int error, const std::string& path, absl::string_view what);
  absl::Status Fits(const PrepareState& state, int64_t longest) const;
  absl::Status Write(int fd, const std::string& path, absl::string_view bytes);
  absl::Status Flush();
  absl::Status WriteIndex();
  absl::Status WriteWhole(const char* name, absl::string_view text);
  absl::Status SyncFile(int fd, const std::string& path);
  absl::Status WriteHeader();
  absl::Status PutInPlace();
  absl::Status GiveToReaders(const char* name) const;
  void NoteHolder() const;
  std::string Holder() const;
  absl::Status DropPart(const EncodedChunk& chunk);

  const PreparedPlace place_;
  const std::string folder_;
  int folder_fd_ = -1, lock_fd_ = -1, tokens_fd_ = -1, lengths_fd_ = -1;
  bool broken_ = false;  // by an error of the disk
  PrepareState state_;
  std::string lengths_;  // not yet written
  int64_t bytes_since_commit_ = 0;
};

}  // namespace weft
