// The terminal on stdout, as far as a line that is drawn again and again needs to know it.
#pragma once

namespace weft {

// Returns how many columns the terminal has now; 80 if it does not say. 0: stdout is no terminal,
// or one that cannot draw a line anew (TERM=dumb, or none).
int TerminalColumns();

}  // namespace weft
