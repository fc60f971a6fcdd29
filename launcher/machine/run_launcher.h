// A run's launcher is named by what it has started: its weftd, its agent and their ranks carry the
// launcher's number and the time of its start in their environment (WEFT_LAUNCHER). So
// whoever finds processes with a run's id can tell what a crash has left from what is held by a
// launcher that lives, or stands still, and is no business of theirs. Reads /proc.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

namespace weft {

inline constexpr char kLauncherVariable[] = "WEFT_LAUNCHER";

// Returns what this process, a launcher, hands on in that variable.
std::string LauncherMark();

struct LivingLauncher {
  pid_t pid = 0;       // as seen from here; 0: it is in a container that this process cannot see
  std::string folder;  // of temporary files that are shared with that container; else empty
};
// Returns who holds the run with this id and lives, or stands still; this process is not counted.
// Nothing: nobody whom this process can see, so what carries the id is dead wood.
std::optional<LivingLauncher> LivingLauncherOf(const std::string& run_id);

}  // namespace weft
