// This is the one place that knows what weft was given as stdin, stdout and stderr, and whether its
// answer has reached stdout: main holds the streams before a verb runs and asks at its end.
#pragma once

namespace weft {

// Opens what the caller left closed so that using it fails, instead of meeting the first file that
// weft opens under the same number; and turns writing to a pipe without a reader into an error that
// a verb outlives: whoever reads `weft run | head` has not asked the run to end.
void HoldStandardStreams();

// Writes out what stdout still holds. `exit_code` if all of the answer has arrived, or if its
// reader has closed the pipe (it has all that it wanted); else says why on stderr and returns 1.
int FlushAnswer(int exit_code);

}  // namespace weft
