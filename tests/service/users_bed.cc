#include "tests/service/users_bed.h"

#include <grpcpp/grpcpp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "process/rpc.h"
#include "tests/end_to_end/lacking.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr int64_t kSubmitMs = 20000;

}  // namespace

std::vector<std::string> As(uid_t user, std::vector<std::string> words) {
  const std::string id = std::to_string(user);
  words.insert(words.begin(),
               {"/usr/bin/setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"});
  return words;
}

void UsersBed::SetUp() {
  END_FOR_WANT_OF(geteuid() == 0 ? "" : "other users cannot be played here; be root");
  ServiceBed::SetUp();
}

void UsersBed::PrepareFolder() {
  ASSERT_EQ(chown(folder().c_str(), kServiceUid, kServiceUid), 0);
  ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
  std::filesystem::create_directory(programs());
  const std::string there = programs();
  ASSERT_EQ(mount(BinaryPath("/bin").c_str(), there.c_str(), nullptr, MS_BIND, nullptr), 0);
  // Whoever removes the folder removes no program.
  const unsigned long only_look = MS_BIND | MS_REMOUNT | MS_RDONLY;
  ASSERT_EQ(mount(nullptr, there.c_str(), nullptr, only_look, nullptr), 0);
  UseWeftd(programs() + "/weftd");
}

void UsersBed::TearDown() {
  if (folder().empty()) return;
  umount2(programs().c_str(), MNT_DETACH);  // which only takes the name away
  ServiceBed::TearDown();
}

std::vector<std::string> UsersBed::WeftdWords() const {
  return As(kServiceUid, {WeftdPath(), "--socket=" + socket(), "--state=" + state(),
                          "--user=root=operator", "--user=12345=submitter", "--user=12347=viewer"});
}

std::vector<std::string> UsersBed::HostWords(int slots) const {
  std::vector<std::string> words = ServiceBed::HostWords(slots);
  words[0] = programs() + "/weft";
  words.push_back("--allow=*");
  return As(AgentsUser(), words);
}

std::unique_ptr<v1::Control::Stub> UsersBed::Caller(uid_t user) const {
  EXPECT_EQ(seteuid(user), 0);
  const auto channel = OpenChannel("unix:" + socket(), {}, Listens::kService);
  EXPECT_EQ(seteuid(0), 0);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return channel.ok() ? v1::Control::NewStub(*channel) : nullptr;
}

absl::Status UsersBed::SubmitAs(uid_t user, const v1::SubmitRequest& request, std::string* job) {
  grpc::ClientContext context;
  SetDeadline(context, kSubmitMs);
  v1::SubmitReply reply;
  const absl::Status status = FromGrpc(Caller(user)->Submit(&context, request, &reply));
  if (job != nullptr) *job = reply.job_id();
  return status;
}

std::string UsersBed::Weft(uid_t user, std::vector<std::string> words) {
  words.insert(words.begin(), programs() + "/weft");
  return Run(As(user, std::move(words)));
}

void UsersBed::WriteAs(uid_t user, const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  ASSERT_EQ(chown(path.c_str(), user, user), 0);
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

void UsersBed::MakeFolderAs(uid_t user, const std::string& path, mode_t mode) {
  ASSERT_TRUE(std::filesystem::create_directory(path)) << path;
  ASSERT_EQ(chown(path.c_str(), user, user), 0);
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

void UsersBed::LinkAs(uid_t user, const std::string& to, const std::string& path) {
  std::filesystem::create_symlink(to, path);
  ASSERT_EQ(lchown(path.c_str(), user, user), 0);
}

mode_t UsersBed::ModeOf(const std::string& path) {
  struct stat found = {};
  EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777;
}

}  // namespace weft
