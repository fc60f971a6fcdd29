// UsersBed: a service with users of its own: weftd's, the standing agent's, which is the same
// unless a test says otherwise, a submitter, a viewer, and a stranger whom it does not know. All
// are played by root; without root a test ends at once.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/weft/v1/control.grpc.pb.h"
#include "tests/service/service_bed.h"

namespace weft {

inline constexpr uid_t kServiceUid = 12346;  // weftd's and the standing agent's
inline constexpr uid_t kSubmitter = 12345;
inline constexpr uid_t kViewer = 12347;
inline constexpr uid_t kStranger = 12348;  // whom the service does not know

// The command line that runs `words` as that user, with no other group.
std::vector<std::string> As(uid_t user, std::vector<std::string> words);

class UsersBed : public ServiceBed {
 protected:
  void SetUp() override;
  // The users of the service reach its programs by a way of their own: this checkout may lie where
  // they may not look.
  void PrepareFolder() override;
  void TearDown() override;
  std::vector<std::string> WeftdWords() const override;
  std::vector<std::string> HostWords(int slots) const override;
  virtual uid_t AgentsUser() const { return kServiceUid; }

  std::string programs() const { return folder() + "/programs"; }
  std::string state() const { return folder() + "/state"; }

  // A stub whose calls come from that user: the kernel tells weftd who has connected.
  std::unique_ptr<v1::Control::Stub> Caller(uid_t user) const;
  absl::Status SubmitAs(uid_t user, const v1::SubmitRequest& request, std::string* job = nullptr);
  // Runs `weft` as that user; returns what it has written.
  std::string Weft(uid_t user, std::vector<std::string> words);

  static void WriteAs(uid_t user, const std::string& path, const std::string& text, mode_t mode);
  static void MakeFolderAs(uid_t user, const std::string& path, mode_t mode);
  static void LinkAs(uid_t user, const std::string& to, const std::string& path);
  static mode_t ModeOf(const std::string& path);
};

}  // namespace weft
