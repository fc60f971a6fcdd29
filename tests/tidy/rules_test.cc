// Each rule of rules.h against planted breaches, and against the nearest text that is allowed.
#include "tests/tidy/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

struct IncludeCase {
  const char* path;
  const char* header;
  bool allowed;
};

void ExpectAsSaid(const std::vector<IncludeCase>& cases) {
  for (const IncludeCase& c : cases) {
    const std::string text = "// Prose.\n#include \"" + std::string(c.header) + "\"\n";
    const Violations violations = IncludeViolations({c.path, text});
    EXPECT_EQ(violations.empty(), c.allowed) << c.path << " includes " << c.header;
    if (!c.allowed) {
      EXPECT_THAT(violations, ElementsAre(HasSubstr(std::string(c.path) + ":2: ")));
    }
  }
}

TEST(Includes, OfSharedFoldersPointDownOnly) {
  ExpectAsSaid({
      {"plan/search/search.cc", "plan/spec/layout.h", true},
      {"plan/search/search.cc", "vector", true},
      {"plan/search/search.cc", "absl/strings/str_cat.h", true},
      {"plan/search/search.cc", "absl/container/flat_hash_map.h", false},
      {"plan/search/search.cc", "absl/time/time.h", false},
      {"plan/search/search.cc", "proto/plan.pb.h", false},
      {"plan/search/search.cc", "fstream", false},
      {"plan/search/search.cc", "chrono", false},
      {"plan/search/search.cc", "unistd.h", false},
      {"plan/search/search.cc", "coordinator/job.h", false},
      {"proto/wire.cc", "proto/plan.pb.h", true},
      {"proto/wire.cc", "process/log.h", false},
      {"proto/job_text.cc", "text/json.h", true},
      {"text/json.cc", "nlohmann/json.hpp", true},
      {"text/json.cc", "plan/spec/layout.h", false},
      {"plan/search/search.cc", "text/json.h", false},
      {"process/rpc.cc", "grpcpp/grpcpp.h", true},
      {"process/log.cc", "grpcpp/grpcpp.h", false},
      {"process/log.cc", "worker/train/trainer.h", false},
      {"data/sampling.cc", "xxhash.h", true},
      {"data/sampling.cc", "process/log.h", false},
      {"checkpoint/checkpoint.cc", "nlohmann/json.hpp", true},
      {"checkpoint/checkpoint.cc", "worker/model/stage.h", false},
      {"checkpoint/checkpoint.cc", "google/protobuf/message.h", false},
  });
}

TEST(Includes, OfExecutablesNeverMeet) {
  ExpectAsSaid({
      {"coordinator/job.cc", "plan/search/search.h", true},
      {"coordinator/job.cc", "launcher/machine/start.h", false},
      {"coordinator/job.cc", "worker/train/trainer.h", false},
      {"coordinator/job.cc", "grpcpp/grpcpp.h", false},
      {"coordinator/service/run_door.h", "grpcpp/grpcpp.h", true},
      {"coordinator/record_file.cc", "sqlite3.h", true},
      {"coordinator/job.cc", "sqlite3.h", false},
      {"coordinator/job.cc", "checkpoint/checkpoint.h", false},
      {"launcher/job_file/yaml_tree.cc", "yaml-cpp/yaml.h", true},
      {"launcher/job_file/job_yaml.cc", "yaml-cpp/yaml.h", false},
      {"coordinator/job.cc", "yaml-cpp/yaml.h", false},
      {"launcher/run/foreground.cc", "worker/process/link.h", false},
      {"launcher/run/foreground.cc", "coordinator/job.h", false},
      {"launcher/run/foreground.cc", "grpcpp/grpcpp.h", false},
      {"launcher/service/control_client.cc", "grpcpp/grpcpp.h", true},
      {"launcher/commands/run.cc", "CLI/CLI.hpp", true},
      {"launcher/run/foreground.cc", "CLI/CLI.hpp", false},
      {"launcher/run/foreground.cc", "launcher/commands/commands.h", false},
      {"launcher/main.cc", "launcher/commands/commands.h", true},
      {"worker/train/trainer.cc", "worker/backend/device.h", true},
      {"worker/train/trainer.cc", "worker/backend/cpu/device.h", false},
      {"worker/train/trainer.cc", "mpi.h", false},
      {"worker/train/trainer.cc", "cuda_runtime.h", false},
      {"worker/train/trainer.cc", "grpcpp/grpcpp.h", false},
      {"worker/train/trainer.cc", "coordinator/job.h", false},
      {"worker/process/link.cc", "grpcpp/grpcpp.h", true},
      {"worker/backend/device.h", "string", true},
      {"worker/backend/device.h", "absl/status/status.h", false},
      {"worker/backend/loader.h", "absl/status/status.h", true},
      {"worker/backend/cpu/comm.cc", "mpi.h", true},
      {"worker/backend/cpu/math.cc", "cblas.h", true},
      {"worker/backend/cpu/comm.cc", "plan/spec/layout.h", false},
      {"worker/backend/cpu/comm.cc", "plan/schedule/schedule.h", false},
      {"worker/backend/cpu/comm.cc", "grpcpp/grpcpp.h", false},
      {"worker/backend/cpu/comm.cc", "nccl.h", false},
      {"worker/backend/cuda/comm.cu", "nccl.h", true},
      {"worker/backend/cuda/comm.cu", "mpi.h", false},
      {"worker/train/trainer.cc", "boost/optional.hpp", false},
      {"tests/worker/train/trainer_test.cc", "worker/train/trainer.h", true},
  });
}

TEST(Includes, OfRoomsPointOneWay) {
  ExpectAsSaid({
      {"plan/memory/memory.cc", "plan/spec/model.h", true},
      {"plan/spec/model.cc", "plan/memory/memory.h", false},
      {"plan/estimate/a.cc", "plan/engine/time_habits.h", true},
      {"plan/schedule/a.cc", "plan/engine/time_habits.h", false},
      {"plan/estimate/a.cc", "plan/search/plan.h", false},
      {"worker/model/stage.cc", "worker/state/arena.h", true},
      {"worker/state/arena.cc", "worker/model/stage.h", false},
      {"worker/train/trainer.cc", "plan/search/search.h", false},
      {"worker/backend/cpu/kernels/norm.cc", "worker/backend/cpu/host/threads.h", true},
      {"worker/backend/cpu/kernels/norm.cc", "worker/backend/cuda/kernels/kernels.h", false},
      {"launcher/run/foreground.cc", "launcher/machine/start.h", true},
      {"launcher/machine/start.cc", "launcher/run/foreground.h", false},
      {"launcher/run/foreground.cc", "launcher/service/control_client.h", true},
      {"launcher/service/control_client.cc", "launcher/run/foreground.h", false},
      {"coordinator/job.cc", "plan/explain/explain.h", true},
  });
}

TEST(Includes, InAngleBracketsCountTheSame) {
  EXPECT_THAT(IncludeViolations({"plan/cost.cc", "#include <thread>\n#  include <mpi.h>\n"}),
              SizeIs(2));
}

std::string TextOfLines(int lines) {
  std::string text;
  for (int line = 0; line < lines; ++line) text += "\n";
  return text;
}

std::string FunctionOfLines(int lines) {
  return "int F() {\n" + TextOfLines(lines - 2) + "}\n";
}

TEST(Sizes, FilesHaveAnUpperBound) {
  EXPECT_THAT(SizeViolations({"plan/a.cc", TextOfLines(600)}), IsEmpty());
  EXPECT_THAT(SizeViolations({"plan/a.cc", TextOfLines(601)}), SizeIs(1));
  EXPECT_THAT(SizeViolations({"tests/plan/a_test.cc", TextOfLines(900)}), IsEmpty());
  EXPECT_THAT(SizeViolations({"tests/plan/a_test.cc", TextOfLines(901)}), SizeIs(1));
  EXPECT_THAT(SizeViolations({"worker/main.cc", TextOfLines(80)}), IsEmpty());
  EXPECT_THAT(SizeViolations({"worker/main.cc", TextOfLines(81)}), SizeIs(1));
}

TEST(Sizes, FunctionsHaveAnUpperBound) {
  EXPECT_THAT(SizeViolations({"plan/a.cc", FunctionOfLines(60)}), IsEmpty());
  EXPECT_THAT(SizeViolations({"plan/a.cc", "\n" + FunctionOfLines(61)}),
              ElementsAre(HasSubstr("plan/a.cc:2: int F() has 61 lines")));
}

TEST(Sizes, FunctionsAreFoundWhereverTheyStand) {
  const std::string body = " {\n" + TextOfLines(70) + "}\n";
  const std::string heads[] = {
      "namespace weft {\nvoid F(int a = 1)" + body + "}\n",
      "namespace {\nstruct S {\n int x = 0;\n private:\n  int F() const" + body + "};\n}\n",
      "class alignas(64) S {\n  S(int a) : a_{a}, b_(2)" + body + "  int a_{};\n};\n",
      "extern \"C\" {\nint F()" + body + "}\n",
      "extern \"C\" int F()" + body,
      "template <class T>\nauto F(T t) -> T" + body,
      "TEST(Layouts, Tile)" + body,
      "bool operator==(const S& a, const S& b)" + body,
      "std::map<int, int> kTable = {{1, 2}, {3, 4}};\nvoid F()" + body,
      "#define OPEN() {\nvoid F()" + body,
      "const char* kText = R\"x({{{ \" )x\";\nchar c = '{';\n// {\n/* { */ void F()" + body,
      "int kBig = 1'000'000;\nvoid F()" + body,
  };
  for (const std::string& text : heads) {
    EXPECT_THAT(SizeViolations({"plan/a.cc", text}), SizeIs(1)) << text.substr(0, 80);
  }
}

TEST(Sizes, TypesNamespacesAndTablesAreNoFunctions) {
  const std::string body = " {\n" + TextOfLines(70) + "}";
  for (const char* head :
       {"namespace weft", "struct S", "class S final : public T<int>", "enum class E : int",
        "const std::vector<Room> kRooms =", "constexpr Table kTable"}) {
    EXPECT_THAT(SizeViolations({"plan/a.cc", head + body + ";\n"}), IsEmpty()) << head;
  }
}

TEST(Sizes, SmallConceptsLiveWithTheirOneUser) {
  const SourceFile header{"plan/a.h", TextOfLines(14)};
  const SourceFile body{"plan/a.cc", TextOfLines(15)};
  EXPECT_THAT(SmallConceptViolations({header, body}), ElementsAre(HasSubstr("plan/a: 29 lines")));
  EXPECT_THAT(SmallConceptViolations({header, {"plan/a.cc", TextOfLines(16)}}), IsEmpty());
  EXPECT_THAT(SmallConceptViolations({header}), IsEmpty());  // an interface
  EXPECT_THAT(SmallConceptViolations({{"launcher/main.cc", TextOfLines(12)}}), IsEmpty());
}

TEST(Circles, BetweenFilesAreRefusedHoweverTheyClose) {
  const SourceFile header{"plan/spec/a.h", "#include \"plan/spec/b.h\"\n"};
  const SourceFile source{"plan/spec/b.cc",
                          "#include \"plan/spec/b.h\"\n#include \"plan/spec/a.h\"\n"};
  const SourceFile other{"plan/spec/b.h", ""};
  EXPECT_THAT(CircleViolations({header, other, source}),
              ElementsAre(HasSubstr("plan/spec/a -> plan/spec/b -> plan/spec/a: ")));
  EXPECT_THAT(CircleViolations({header, other}), IsEmpty());
  EXPECT_THAT(
      CircleViolations({header, other, {"plan/spec/b.cc", "// #include \"plan/spec/a.h\"\n"}}),
      IsEmpty());
}

TEST(Circles, OfThreeAndOfTwoAreBothNamed) {
  const auto includes = [](const char* path, const char* header) {
    return SourceFile{path, "#include \"" + std::string(header) + "\"\n"};
  };
  EXPECT_THAT(
      CircleViolations({includes("data/a.h", "data/b.h"), includes("data/b.h", "data/c.h"),
                        includes("data/c.h", "data/a.h"), includes("data/d.h", "data/e.h"),
                        includes("data/e.h", "data/d.h"), includes("data/f.h", "data/a.h")}),
      UnorderedElementsAre(HasSubstr("data/a -> data/b -> data/c -> data/a: "),
                           HasSubstr("data/d -> data/e -> data/d: ")));
}

TEST(Circles, BetweenFoldersAreRefusedAlsoWithoutOneBetweenFiles) {
  const SourceFile up{"plan/spec/a.h", "#include \"plan/memory/b.h\"\n"};
  const SourceFile end{"plan/memory/b.h", ""};
  const SourceFile down{"plan/memory/c.cc", "#include \"plan/spec/d.h\"\n"};
  const SourceFile leaf{"plan/spec/d.h", ""};
  EXPECT_THAT(CircleViolations({up, end, down, leaf}),
              ElementsAre(HasSubstr("plan/memory -> plan/spec -> plan/memory: ")));
  EXPECT_THAT(CircleViolations({up, end, leaf}), IsEmpty());
  EXPECT_THAT(CircleViolations({{"tests/a/a.h", "#include \"tests/a/b.h\"\n"},
                                {"tests/a/b.h", "#include \"tests/a/a.h\"\n"}}),
              ElementsAre(HasSubstr("tests/a/a -> tests/a/b -> tests/a/a: ")));
}

// Returns the violations of classes in one file; those that the table names are elsewhere.
Violations OfClasses(const std::string& text) {
  Violations found = ClassViolations({{"worker/train/a.cc", text}});
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](const std::string& violation) {
                               return violation.find("is long no more") != std::string::npos;
                             }),
              found.end());
  return found;
}

TEST(Sizes, ClassesHaveAnUpperBound) {
  const auto body = [](int lines) { return " {\n" + TextOfLines(lines - 2) + "};\n"; };
  EXPECT_THAT(OfClasses("class A final : public B" + body(300)), IsEmpty());
  EXPECT_THAT(OfClasses("\nclass A final : public B" + body(301)),
              ElementsAre(HasSubstr("worker/train/a.cc:2: class A has 301 lines, at most 300")));
  EXPECT_THAT(OfClasses("struct Outer {\n class Inner" + body(301) + "};\n"),
              UnorderedElementsAre(HasSubstr("class Outer "), HasSubstr("class Inner ")));
  EXPECT_THAT(OfClasses("template <class T>\nclass Link::Part" + body(301)),
              ElementsAre(HasSubstr("class Link::Part ")));
  EXPECT_THAT(OfClasses("enum class E" + body(301)), IsEmpty());
  EXPECT_THAT(OfClasses("namespace weft" + body(301)), IsEmpty());
  EXPECT_THAT(OfClasses("class B;\nint kTable[] =" + body(301)), IsEmpty());
  EXPECT_THAT(ClassViolations({{"tests/a.cc", "class A" + body(301)}}),
              Not(Contains(HasSubstr("class A has"))));
}

// The table of long classes has to say what is true, or it would hide what grows.
TEST(Sizes, ALongClassThatIsCutLeavesTheTable) {
  EXPECT_THAT(ClassViolations({}), Contains(HasSubstr("take it out of LongClasses")));
}

TEST(Names, OfTypesStandForOneEach) {
  const auto in = [](const char* path, const std::string& text) {
    return SourceFile{path, "namespace weft {\n" + text + "}\n"};
  };
  const SourceFile home = in("plan/a.h", "struct Place {\n};\n");
  for (const char* text :
       {"struct Place {\n};\n", "class Place final : public B {\n};\n",
        "enum class Place { kA };\n", "enum Place : int { kA };\n", "union Place {\n int a;\n};\n",
        "template <int kRows>\nstruct Place {\n};\n", "struct alignas(16) Place {\n};\n"}) {
    EXPECT_THAT(DoubleTypeViolations({home, in("worker/b.h", text)}),
                ElementsAre(HasSubstr(": Place is also a type of plan/a.h:2; ")))
        << text;
  }
  for (const char* text :
       {"struct Place;\n", "namespace {\nstruct Place {\n};\n}\n",
        "struct S {\n struct Place {\n};\n};\n", "void F() {\n  struct Place {\n  };\n}\n",
        "namespace cuda {\nstruct Place {\n};\n}\n", "struct Other::Place {\n};\n",
        "template <>\nstruct Place<int> {\n};\n", "// struct Place {\nstruct Places {\n};\n",
        "Place F(Place place) {\n  return place;\n}\n"}) {
    EXPECT_THAT(DoubleTypeViolations({home, in("worker/b.h", text)}), IsEmpty()) << text;
  }
  EXPECT_THAT(DoubleTypeViolations({home, in("tests/b.h", "struct Place {\n};\n")}), IsEmpty());
}

TEST(Names, SayWhatIsInside) {
  for (const char* path : {"plan/utils.cc", "common/a.cc", "worker/file_utils.h", "plan/types.h",
                           "tests/plan/test_helpers.h", "base/a.h", "process/misc.cc"}) {
    EXPECT_THAT(NameViolations({path, ""}), SizeIs(1)) << path;
  }
  for (const char* path : {"plan/spec/layout.cc", "worker/backend/device.h", "plan/database.h"}) {
    EXPECT_THAT(NameViolations({path, ""}), IsEmpty()) << path;
  }
}

TEST(Shape, HeadersOpenWithProseAndPragmaOnce) {
  EXPECT_THAT(ShapeViolations({"plan/a.h", "// Prose.\n#pragma once\n"}), IsEmpty());
  EXPECT_THAT(ShapeViolations({"plan/a.h", "#pragma once\n"}), SizeIs(1));
  EXPECT_THAT(ShapeViolations({"plan/a.h", "// Prose.\n"}), SizeIs(1));
  EXPECT_THAT(ShapeViolations({"plan/a.h", ""}), SizeIs(2));
  EXPECT_THAT(ShapeViolations({"plan/a.cc", "int a;\n"}), IsEmpty());
}

TEST(Shape, LinesAreClean) {
  const std::string wide(100, 'x');
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xC3\xBC";
  for (const std::string line : {"\tint a;", "int a; ", "int a;\r",
                                 "// TOD"
                                 "O: later",
                                 "// TOD"
                                 "O(me): later"}) {
    EXPECT_THAT(ShapeViolations({"plan/a.cc", line + "\n"}), SizeIs(1)) << line;
  }
  EXPECT_THAT(ShapeViolations({"plan/a.cc", wide + "x\n"}), SizeIs(1));
  for (const std::string& line : {wide, umlauts, std::string("// TODO(#12): later")}) {
    EXPECT_THAT(ShapeViolations({"plan/a.cc", line + "\n"}), IsEmpty()) << line;
  }
}

TEST(Json, IsParsedInOnePlace) {
  for (const char* call : {"nlohmann::json::parse(text)", "Json::parse(text, nullptr, false)",
                           "OrderedJson::accept(text)", "json::sax_parse(text, &sax)"}) {
    const std::string text = "const auto a = " + std::string(call) + ";\n";
    EXPECT_THAT(JsonViolations({"launcher/run/a.cc", text}),
                ElementsAre(HasSubstr("launcher/run/a.cc:1: calls ")));
    EXPECT_THAT(JsonViolations({"text/json.cc", text}), IsEmpty());
    EXPECT_THAT(JsonViolations({"tests/proto/a_test.cc", text}), IsEmpty());
  }
  EXPECT_THAT(JsonViolations({"launcher/run/a.cc", "ParseJson(text); Json::array();\n"}),
              IsEmpty());
}

TEST(Comments, OpenWithASubjectAndAVerb) {
  for (const std::string word : {"Of", "What", "Those", "Whose", "Whom"}) {
    for (const std::string& line : {"// " + word + " a step.", "  // " + word + ": a step."}) {
      EXPECT_THAT(
          CommentViolations({"plan/a.cc", "int a;\n" + line + "\n// It is long.\nint b;\n"}),
          ElementsAre("plan/a.cc:2: a comment opens with \"" + word +
                      "\"; give its first sentence a subject and a verb"));
    }
  }
  EXPECT_THAT(
      CommentViolations({"plan/a.h", "// Of one.\n\n// What two.\nint a;\n//\n// Those.\n"}),
      ElementsAre(HasSubstr("plan/a.h:1: "), HasSubstr("plan/a.h:3: "), HasSubstr("plan/a.h:6: ")));
  for (const char* text :
       {"// Returns the bytes\n// Of a step.\n", "int a;  // Of a step.\n", "// Offers a step.\n",
        "// Whatever a step takes is kept.\n", "// of a step\n", "// Offers:\n//\n// Of it.\n"}) {
    EXPECT_THAT(CommentViolations({"plan/a.cc", text}), IsEmpty()) << text;
  }
}

TEST(CMake, NamesFilesAndTargets) {
  for (const char* line : {"file(GLOB sources *.cc)", "  file (GLOB_RECURSE s *.cc)",
                           "include_directories(.)", "link_libraries(m)"}) {
    EXPECT_THAT(CMakeViolations({"plan/CMakeLists.txt", line}), SizeIs(1)) << line;
  }
  for (const char* line : {"target_include_directories(a PUBLIC .)", "# file(GLOB is banned)",
                           "target_link_libraries(a m)", "file(READ a b)"}) {
    EXPECT_THAT(CMakeViolations({"plan/CMakeLists.txt", line}), IsEmpty()) << line;
  }
}

}  // namespace
}  // namespace weft
