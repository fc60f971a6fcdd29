// docs/examples/control_client.py, a program of somebody else's: stock grpcio, and what protoc
// makes of proto/weft/v1/control.proto alone.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tests/end_to_end/lacking.h"
#include "tests/places.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr char kPython[] = "/usr/bin/python3";  // Debian's, which has Debian's grpcio
constexpr char kPlugin[] = "/usr/bin/grpc_python_plugin";

class PythonClient : public ServiceBed {
 protected:
  void SetUp() override {
    ServiceBed::SetUp();
    const std::string imports =
        std::string(kPython) + " -c 'import grpc, google.protobuf' 2>/dev/null";
    const bool has_grpcio = std::system(("timeout 60 " + imports).c_str()) == 0;
    END_FOR_WANT_OF(has_grpcio ? "" : "no grpcio; install python3-grpcio and python3-protobuf");
    // As docs/service.md has it.
    const std::string protoc =
        "cd " + SourcePath() + " && timeout 60 protoc -I proto --python_out=" + folder() +
        " --grpc_python_out=" + folder() + " --plugin=protoc-gen-grpc_python=" + kPlugin +
        " proto/weft/v1/control.proto";
    ASSERT_EQ(std::system(protoc.c_str()), 0);
  }
  std::vector<std::string> WeftdWords() const override {
    std::vector<std::string> words = ServiceBed::WeftdWords();
    if (!std::filesystem::exists(folder() + "/ca")) MakeBundles();
    for (const std::string& word :
         {std::string("--listen=127.0.0.1:0"), "--tls=" + folder() + "/server.pem",
          "--revoked=" + folder() + "/ca/revoked", "--port-file=" + folder() + "/port"}) {
      words.push_back(word);
    }
    return words;
  }
  // As docs/service.md has it.
  void MakeBundles() const {
    const std::string weftd = "cd " + folder() + " && " + BinaryPath("/bin/weftd") + " ";
    for (const char* const words : {"authority ca", "issue server --authority ca --out server.pem",
                                    "issue submitter --authority ca --out ann.pem ann",
                                    "issue viewer --authority ca --out guest.pem guest"}) {
      EXPECT_EQ(std::system((weftd + words + " > /dev/null").c_str()), 0) << words;
    }
  }
  // `bundle`: over TLS; empty: by the socket.
  std::unique_ptr<Child> Client(const std::string& run_folder, const std::string& bundle = "") {
    const std::string output = folder() + "/client";
    std::vector<std::string> words = {kPython, "-B",
                                      SourcePath("/docs/examples/control_client.py")};
    std::string address = "unix:" + socket();
    if (!bundle.empty()) {
      words.insert(words.end(), {"--tls", folder() + "/" + bundle});
      address = "127.0.0.1:" + std::to_string(std::atoi(ReadText(folder() + "/port").c_str()));
    }
    words.insert(words.end(), {address, SourcePath("/docs/examples/job.json"), run_folder});
    return std::make_unique<Child>(words,
                                   std::map<std::string, std::string>{{"PYTHONPATH", folder()}},
                                   output + ".out", output + ".err");
  }
};

TEST_F(PythonClient, SubmitsAJobListsItAndWatchesItUntilItIsOver) {
  StartHost(2);
  const auto client = Client(folder() + "/first");
  const auto ended = client->Wait(240);
  ASSERT_TRUE(ended && ended->exit_code == 0) << client->Stdout() << client->Stderr();
  const std::string words = client->Stdout();
  EXPECT_THAT(words, HasSubstr("submitted job-1\njob-1  "));
  EXPECT_THAT(words, HasSubstr("job-1  RUNNING"));
  EXPECT_THAT(words, HasSubstr("job-1  saved step-30"));
  EXPECT_THAT(words, HasSubstr("job-1 is COMPLETED: step 30 of 30\n"));
}

// The certificate says who calls.
TEST_F(PythonClient, SubmitsOverTlsAsWhomItsBundleNames) {
  const auto denied = Client(folder() + "/denied", "guest.pem");
  ASSERT_TRUE(denied->Wait(240).has_value());
  EXPECT_THAT(denied->Stderr(), HasSubstr("control_client: PERMISSION_DENIED: "));
  const auto client = Client(folder() + "/first", "ann.pem");
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    return client->Stdout().find("QUEUED") != std::string::npos;
  })) << client->Stderr();
  EXPECT_THAT(client->Stdout(), HasSubstr("submitted job-1\njob-1  QUEUED  ann  "));
  client->Signal(SIGKILL);
  EXPECT_TRUE(client->Wait(kPatienceS).has_value());
}

TEST_F(PythonClient, GoesOnWatchingWhenWeftdIsKilled) {
  const auto client = Client(folder() + "/first");
  ASSERT_TRUE(
      Eventually(kPatienceS, [&] { return client->Stdout().find("QUEUED") != std::string::npos; }));
  KillWeftd();
  StartHost(2);
  const auto ended = client->Wait(240);
  ASSERT_TRUE(ended && ended->exit_code == 0) << client->Stdout() << client->Stderr();
  const std::string words = client->Stdout();
  EXPECT_THAT(words, HasSubstr("job-1  COMPLETED"));
  const size_t first = words.find("\njob-1  RUNNING  ");
  EXPECT_EQ(words.find("\njob-1  QUEUED  ", first), std::string::npos) << words;
}

TEST_F(PythonClient, IsToldByNameWhatIsWrong) {
  const auto client = Client("runs/relative");
  const auto ended = client->Wait(240);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->exit_code, 2);
  EXPECT_THAT(client->Stderr(), HasSubstr("control_client: INVALID_ARGUMENT: run_folder: "));
}

}  // namespace
}  // namespace weft
