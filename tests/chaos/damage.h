// Damage that a disk may do to a checkpoint.
#pragma once
#include <string>

namespace weft {

// Flips a bit of a file of the newest checkpoint in the folder; `draw` says of which file, and
// where. False: there is no checkpoint, or it could not be written.
bool FlipABitOfTheNewest(const std::string& checkpoint_folder, unsigned draw);

}  // namespace weft
