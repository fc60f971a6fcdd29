#include "tests/hosts/equal_rates.h"

#include <filesystem>
#include <fstream>

#include "tests/places.h"

namespace weft {

std::string ProgramsOfEqualRates(HostBed* bed) {
  const std::string folder = bed->shared() + "/programs";
  if (std::filesystem::exists(folder)) return folder;
  std::filesystem::create_directory(folder);
  // A program looks for the others beside itself, wherever a link to it lies.
  for (const char* const program : {"/weft", "/weftd", "/weft-shim"}) {
    std::filesystem::copy_file(BinaryPath("/bin") + program, folder + program);
  }
  std::ofstream(folder + "/weft-worker")
      << "#!/bin/sh\n"
      << "case \" $* \" in *' --probe=product '*) echo '{\"product_flops_per_s\": 1e10}'; exit;; "
      << "esac\n"
      << "exec '" << BinaryPath("/bin/weft-worker") << "' \"$@\"\n";
  std::filesystem::permissions(folder + "/weft-worker", std::filesystem::perms::owner_all);
  bed->Keep("programs");
  return folder;
}

}  // namespace weft
