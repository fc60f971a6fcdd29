#include "tests/chaos/damage.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "checkpoint/verify.h"

namespace weft {

bool FlipABitOfTheNewest(const std::string& checkpoint_folder, unsigned draw) {
  const auto steps = CommittedSteps(checkpoint_folder);
  if (!steps.ok() || steps->empty()) return false;
  std::vector<std::filesystem::path> files;
  for (const auto& each : std::filesystem::directory_iterator(checkpoint_folder + "/step-" +
                                                              std::to_string(steps->front()))) {
    if (each.file_size() > 0) files.push_back(each);
  }
  if (files.empty()) return false;
  std::sort(files.begin(), files.end());
  const std::filesystem::path& file = files[draw % files.size()];
  const auto at = static_cast<std::streamoff>((draw / 7) % std::filesystem::file_size(file));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const int was = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(was ^ (1 << (draw % 8))));
  return stream.good();
}

}  // namespace weft
