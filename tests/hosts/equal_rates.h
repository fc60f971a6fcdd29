// Programs of weft whose check of a host finds the same rate of products everywhere. Hosts of a bed
// share this machine with each other and with other tests, so that a rate that is measured says who
// had a processor just then; what is done with rates is coordinator/preflight_test's.
#pragma once
#include <string>

#include "tests/hosts/host_bed.h"

namespace weft {

// Returns the folder of the programs, in the shared one. The first call for a bed makes it, and the
// bed keeps it.
std::string ProgramsOfEqualRates(HostBed* bed);

}  // namespace weft
