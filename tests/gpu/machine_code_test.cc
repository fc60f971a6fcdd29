// These tests read the machine code of the kernels, without a device: no local memory (spills,
// arrays with an index that is not known), 128-bit accesses where bandwidth is the limit, and
// tensor-core instructions where matrices are multiplied. They need CUDA's cuobjdump and nvdisasm,
// on PATH or where deploy/cuda_tools.sh puts them.
#include <cxxabi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// How many instances of a template have it at least: one for each type of elements, say, where the
// others are for rows that are not aligned.
struct Demand {
  int wide_loads = 0;  // 128 bits
  int wide_stores = 0;
  bool multiplies = false;  // each instance, by tensor cores
};

// All kernels of the backend. Where none is wide: a few numbers for each row or block, or said.
const std::map<std::string, Demand> kDemands = {
    {"AdamwKernel", {3, 3}},
    {"AddBiasKernel", {3, 3}},
    {"AddPartialSumsKernel", {}},
    {"AddTotalKernel", {}},
    {"AttentionKernel", {6, 3}},  // for heads that the next has no instance for
    {"AttentionMmaKernel", {8, 0, true}},
    {"CodesKernel", {2, 2}},
    {"CombineKernel", {8, 8}},
    {"ConvertKernel", {7, 7}},
    {"CrossEntropyKernel", {3, 3}},
    {"DeltaKernel", {3, 0}},
    {"DocumentTableKernel", {}},
    {"EmbedKernel", {3, 3}},
    {"GradientScaleKernel", {}},
    {"KeyGradientKernel", {6, 3}},
    {"KeyGradientMmaKernel", {8, 0, true}},
    {"LargestPartsKernel", {1, 0}},
    {"ListRowsKernel", {}},
    {"MapKernel", {28, 28}},
    {"MapRowsKernel", {6, 6}},
    {"MomentsKernel", {}},  // Adafactor's are not tuned
    {"NormInputGradientKernel", {3, 3}},
    {"NormKernel", {3, 3}},
    {"NormOfPartKernel", {3, 3}},
    {"NormPartGradientKernel", {3, 3}},
    {"NormProductsKernel", {3, 0}},
    {"NormsKernel", {}},  // Adafactor's
    {"PartSquaresKernel", {3, 0}},
    {"PartialNormsKernel", {}},  // Adafactor's
    {"PartialSquaresKernel", {3, 0}},
    {"PartialSumsKernel", {9, 0}},
    {"PartialTotalsKernel", {}},
    {"QuantisedAdamwKernel", {1, 1}},
    {"QueryGradientKernel", {6, 3}},
    {"QueryGradientMmaKernel", {8, 0, true}},
    {"RotateKernel", {3, 3}},
    {"RowMaxKernel", {3, 0}},
    {"RowSquaresKernel", {}},  // Adafactor's
    {"RowSumExpKernel", {3, 0}},
    {"ScaleKernel", {}},
    {"SoftmaxGradientKernel", {3, 3}},
    {"StreamedNormGradientKernel", {24, 24}},
    {"StreamedNormKernel", {24, 24}},
    {"TableGradientKernel", {3, 0}},
    {"UpdateKernel", {}},  // Adafactor's
};

// One instance of a kernel.
struct Code {
  int local_accesses = 0;
  int wide_loads = 0;
  int wide_stores = 0;
  int products = 0;
};

// Returns "AdamwKernel" for weft::(anonymous namespace)::AdamwKernel<float>(...), mangled.
std::string BaseName(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? plain.get() : mangled;
  for (const char* const unnamed : {"(anonymous namespace)::", "weft::"}) {
    for (size_t at; (at = name.find(unnamed)) != std::string::npos;) {
      name.erase(at, std::string(unnamed).size());
    }
  }
  name = name.substr(0, name.find_first_of("<("));
  return name.substr(name.rfind(' ') + 1);
}

// Adds what one line of a disassembly says: "/*0040*/  @P0 LDG.E.128 R4, [R2.64] ;".
void Count(const std::string& line, Code& code) {
  std::istringstream words(line);
  std::string opcode;
  words >> opcode;
  if (!absl::StartsWith(opcode, "/*")) return;
  words >> opcode;
  if (absl::StartsWith(opcode, "@")) words >> opcode;
  const bool wide = absl::StrContains(opcode, ".128");
  if (absl::StartsWith(opcode, "LDL") || absl::StartsWith(opcode, "STL")) ++code.local_accesses;
  if (absl::StartsWith(opcode, "LDG") && wide) ++code.wide_loads;
  if (absl::StartsWith(opcode, "STG") && wide) ++code.wide_stores;
  for (const char* const product : {"HMMA.", "HGMMA.", "QGMMA.", "IMMA."}) {
    if (absl::StartsWith(opcode, product)) ++code.products;
  }
}

// Instances by the kernel's name.
using Kernels = std::map<std::string, std::vector<Code>>;

Kernels KernelsIn(const std::string& disassembly) {
  Kernels kernels;
  Code* code = nullptr;
  for (const absl::string_view line : absl::StrSplit(disassembly, '\n')) {
    const std::vector<absl::string_view> named = absl::StrSplit(line, "Function : ");
    if (named.size() == 2) {
      code = &kernels[BaseName(std::string(named[1]))].emplace_back();
    } else if (code != nullptr) {
      Count(std::string(line), *code);
    }
  }
  return kernels;
}

// Returns a sentence for each fault.
std::vector<std::string> FaultsOf(const Kernels& kernels,
                                  const std::map<std::string, Demand>& demands) {
  std::vector<std::string> faults;
  for (const auto& [name, instances] : kernels) {
    Demand has{0, 0, true};
    for (const Code& code : instances) {
      has.wide_loads += code.wide_loads > 0 ? 1 : 0;
      has.wide_stores += code.wide_stores > 0 ? 1 : 0;
      has.multiplies &= code.products > 0;
      if (code.local_accesses > 0) faults.push_back(name + " uses local memory");
    }
    const auto demand = demands.find(name);
    if (demand == demands.end()) {
      faults.push_back(name + " is in no row of the table; add it, with what it has to have");
      continue;
    }
    const auto& [loads, stores, multiplies] = demand->second;
    if (has.wide_loads < loads) {
      faults.push_back(absl::StrCat(name, ": ", has.wide_loads, " of ", instances.size(),
                                    " instances load 128 bits at once, the table wants ", loads));
    }
    if (has.wide_stores < stores) {
      faults.push_back(absl::StrCat(name, ": ", has.wide_stores, " of ", instances.size(),
                                    " instances store 128 bits at once, the table wants ", stores));
    }
    if (multiplies && !has.multiplies) faults.push_back(name + " does without tensor cores");
  }
  for (const auto& [name, demand] : demands) {
    if (kernels.count(name) == 0) faults.push_back(name + " is in the table and not in the code");
  }
  return faults;
}

// Returns what the command prints; nothing where it fails.
std::optional<std::string> Printed(const std::string& command) {
  FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[1 << 16];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, got);
  if (pclose(pipe) != 0) return std::nullopt;
  return text;
}

// Returns how cuobjdump is called; empty: it is not there.
std::string Cuobjdump() {
  const std::string tools = SourcePath("/build/cuda_tools/nvidia/cu13/bin");
  const std::string call = "PATH=" + tools + ":$PATH cuobjdump ";
  return Printed(call + "--version") && Printed("PATH=" + tools + ":$PATH nvdisasm --version")
             ? call
             : "";
}

TEST(MachineCode, OfAllKernelsIsAsBandwidthAndTensorCoresWantIt) {
  const std::string cuobjdump = Cuobjdump();
  if (cuobjdump.empty()) GTEST_SKIP() << "no cuobjdump and nvdisasm: bash deploy/cuda_tools.sh";
  const auto text = Printed(cuobjdump + "-arch sm_90a -sass " + BinaryPath("/bin/libweft_cuda.so"));
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(FaultsOf(KernelsIn(*text), kDemands), ElementsAre());
}

TEST(MachineCode, UsesNoStackOnAnyArchitecture) {
  const std::string cuobjdump = Cuobjdump();
  if (cuobjdump.empty()) GTEST_SKIP() << "no cuobjdump and nvdisasm: bash deploy/cuda_tools.sh";
  const auto text = Printed(cuobjdump + "-res-usage " + BinaryPath("/bin/libweft_cuda.so"));
  ASSERT_TRUE(text.has_value());
  std::map<std::string, int> kernels;  // by target
  std::string target, name;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::StartsWith(line, "arch = ")) target = std::string(absl::StripPrefix(line, "arch = "));
    const std::vector<absl::string_view> named = absl::StrSplit(line, "Function ");
    if (named.size() == 2) name = BaseName(std::string(named[1].substr(0, named[1].find(':'))));
    if (!absl::StrContains(line, "STACK:")) continue;
    ++kernels[target];
    // Two instances of it want one register more than there are on some; it is for heads that the
    // tensor cores' kernel has no instance for.
    const bool is_known = name == "KeyGradientKernel" && absl::StrContains(line, "STACK:8 ");
    EXPECT_TRUE(absl::StrContains(line, "STACK:0 ") || is_known)
        << target << ", " << name << ": " << line;
  }
  // Each has 280 now. "80-real", "90a-real", "80-virtual": what the library was compiled for.
  for (const absl::string_view listed : absl::StrSplit(WEFT_CUDA_ARCHITECTURES, ',')) {
    if (absl::EndsWith(listed, "-virtual")) {
      EXPECT_THAT(*text, HasSubstr("Fatbin ptx code:")) << listed;
    } else {
      EXPECT_GT(kernels[absl::StrCat("sm_", absl::StripSuffix(listed, "-real"))], 250) << listed;
    }
  }
}

TEST(MachineCode, OfPlantedKernelsIsFoundWanting) {
  const std::string cuobjdump = Cuobjdump();
  if (cuobjdump.empty()) GTEST_SKIP() << "no cuobjdump and nvdisasm: bash deploy/cuda_tools.sh";
  const auto text = Printed(cuobjdump + "-sass " WEFT_PLANTED_CUBIN);
  ASSERT_TRUE(text.has_value());
  const std::map<std::string, Demand> demands = {{"PlantedSpillKernel", {}},
                                                 {"PlantedNarrowKernel", {1, 1}},
                                                 {"PlantedWideKernel", {1, 1, true}},
                                                 {"GoneKernel", {}}};
  EXPECT_THAT(
      FaultsOf(KernelsIn(*text), demands),
      ElementsAre("PlantedNarrowKernel: 0 of 1 instances load 128 bits at once, the table wants 1",
                  "PlantedNarrowKernel: 0 of 1 instances store 128 bits at once, the table wants 1",
                  "PlantedSpillKernel uses local memory",
                  HasSubstr("PlantedStrangerKernel is in no row of the table"),
                  "PlantedWideKernel does without tensor cores",
                  "GoneKernel is in the table and not in the code"));
}

}  // namespace
}  // namespace weft
