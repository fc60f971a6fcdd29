// These tests say how weft doctor judges what it found.
#include "launcher/machine/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

TEST(JudgePrograms, NamesTheOneOfAnotherBuildOrThatIsNotThere) {
  EXPECT_EQ(JudgePrograms("weft 1", {{"weftd", "weft 1"}, {"weft-worker", "weft 1"}}),
            (Finding{"programs", Health::kOk, "weft, weftd, weft-worker: one build"}));
  EXPECT_EQ(
      JudgePrograms("weft 1",
                    {{"weftd", "weft 2"}, {"weft-worker", absl::NotFoundError("no weft-worker")}}),
      (Finding{"programs", Health::kBroken, "weft is weft 1, but weftd is weft 2; no weft-worker",
               "install all of one build into one folder"}));
}

TEST(ReadBackend, TakesWhatAWorkerPrintsAndNothingElse) {
  const auto backend = ReadBackend(R"({"backend": "cuda", "versions": "CUDA 13.0", )"
                                   R"("devices": [{"name": "A", "memory_bytes": 7}]})");
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ(backend->versions, "CUDA 13.0");
  ASSERT_EQ(backend->devices.size(), 1);
  EXPECT_EQ(backend->devices[0].name, "A");
  EXPECT_EQ(backend->devices[0].memory_bytes, 7);
  for (const char* wrong : {"", "[]", "{}", R"({"versions": "1", "devices": [{}]})",
                            R"({"versions": "1", "devices": [{"name": 3, "memory_bytes": 7}]})",
                            R"({"versions": "1", "devices": 3})",
                            R"({"versions": "1", "devices": [], "notes": [3]})"}) {
    EXPECT_EQ(ReadBackend(wrong).status().code(), absl::StatusCode::kInternal) << wrong;
  }
}

TEST(JudgeBackend, IsBrokenOnlyWhereItIsNeeded) {
  const FoundBackend gpus{
      "CUDA 13.0, NCCL 2.28.9",
      {{"NVIDIA H200 (sm_90)", 140 * kGib}, {"NVIDIA H200 (sm_90)", 140 * kGib}}};
  EXPECT_EQ(JudgeBackend("cuda", gpus, false),
            (Finding{"cuda backend", Health::kOk,
                     "2 x NVIDIA H200 (sm_90), 140 GiB; CUDA 13.0, NCCL 2.28.9"}));
  FoundBackend mixed = gpus;
  mixed.devices[1] = {"NVIDIA L4 (sm_89)", 22 * kGib};
  EXPECT_THAT(JudgeBackend("cuda", mixed, false).found,
              HasSubstr("NVIDIA H200 (sm_90), 140 GiB; NVIDIA L4 (sm_89), 22.0 GiB; CUDA"));
  FoundBackend slow = gpus;
  slow.notes = {"A takes kernels for AVX2; unset it", "B is ignored"};
  EXPECT_EQ(JudgeBackend("cuda", slow, false).health, Health::kNote);
  EXPECT_EQ(JudgeBackend("cuda", slow, false).cure,
            "A takes kernels for AVX2; unset it; B is ignored");
  const absl::Status old =
      absl::UnavailableError("weft-worker --probe failed: backend cuda: the driver is too old");
  EXPECT_EQ(JudgeBackend("cuda", old, false),
            (Finding{"cuda backend", Health::kNote, "the driver is too old"}));
  EXPECT_EQ(JudgeBackend("cuda", old, true).health, Health::kBroken);
  EXPECT_EQ(JudgeBackend("cuda", FoundBackend{"CUDA 13.0", {}}, true),
            (Finding{"cuda backend", Health::kBroken, "no device; CUDA 13.0"}));
}

TEST(BackendsNeeded, AreThoseInstalledThatHaveADeviceOrAreTheOnlyOne) {
  struct Case {
    InstalledBackends installed;
    bool has_gpu;
    bool trains_on_gpus;
    bool cpu;
    bool cuda;
  };
  for (const Case& each : {
           Case{{.cpu = false, .cuda = false}, false, false, true, false},
           Case{{.cpu = true, .cuda = false}, true, false, true, false},
           Case{{.cpu = true, .cuda = true}, false, false, true, false},
           Case{{.cpu = true, .cuda = true}, true, false, true, true},  // the driver is too old
           Case{{.cpu = true, .cuda = true}, true, true, false, true},
           Case{{.cpu = false, .cuda = true}, false, false, false, true},  // a bundle, no GPU
           Case{{.cpu = false, .cuda = true}, true, true, false, true},
       }) {
    const NeededBackends needed = BackendsNeeded(each.installed, each.has_gpu, each.trains_on_gpus);
    EXPECT_EQ(needed.cpu, each.cpu) << each.installed.cpu << each.installed.cuda << each.has_gpu;
    EXPECT_EQ(needed.cuda, each.cuda) << each.installed.cpu << each.installed.cuda << each.has_gpu;
  }
}

TEST(JudgeCpu, ListsTheInstructionSetsThatCount) {
  const std::string cpuinfo =
      "processor\t: 0\nflags\t\t: fpu avx avx2 fma avx512f avx512_bf16 amx_bf16 amx_tile\n"
      "processor\t: 1\nflags\t\t: fpu\n";
  EXPECT_EQ(CpuFeatures(cpuinfo), "avx2, avx512f, avx512_bf16, amx_bf16");
  EXPECT_EQ(JudgeCpu(cpuinfo).health, Health::kOk);
  EXPECT_THAT(JudgeCpu("flags : avx2\n").found, HasSubstr("avx2; no products in bf16"));
  EXPECT_EQ(JudgeCpu("flags : fpu sse2\n").health, Health::kNote);
}

TEST(JudgeCores, NotesOthersThatWantThem) {
  EXPECT_EQ(JudgeCores(2, 1.9).health, Health::kOk);
  EXPECT_EQ(JudgeCores(2, std::nullopt).health, Health::kOk);
  const Finding busy = JudgeCores(2, 14.0);
  EXPECT_EQ(busy.health, Health::kNote);
  EXPECT_THAT(busy.found, HasSubstr("load 14.0"));
}

TEST(JudgeSharedMemory, WantsRoomForARankACore) {
  EXPECT_EQ(JudgeSharedMemory(kGib, kGib, 8).health, Health::kOk);
  const Finding small = JudgeSharedMemory(kGib / 16, kGib / 16, 8);  // docker's 64 MiB
  EXPECT_EQ(small.health, Health::kNote);
  EXPECT_THAT(small.cure, HasSubstr("128 MiB or more"));
  EXPECT_EQ(JudgeSharedMemory(std::nullopt, 0, 8).health, Health::kNote);
}

TEST(JudgeLeftovers, NamesAFewAndCountsAll) {
  EXPECT_EQ(JudgeLeftovers({}).health, Health::kOk);
  EXPECT_EQ(JudgeLeftovers({"/a", "/b", "/c", "/d", "/e"}).found,
            "5 folders of runs that are over: /a, /b, /c, /d, ...");
}

TEST(Examination, IsSoundUnlessSomethingIsBroken) {
  Examination examination;
  examination.findings = {{"a", Health::kOk, ""}, {"b", Health::kNote, ""}};
  EXPECT_TRUE(examination.sound());
  examination.findings.push_back({"c", Health::kBroken, ""});
  EXPECT_FALSE(examination.sound());
}

}  // namespace
}  // namespace weft
