// An unpacked tarball of weft brings its own Open MPI (deploy/tarball.sh), which is not where it
// was built for.
#pragma once
#include <string>

namespace weft {

// Returns the folder that bin/mpirun of a carried Open MPI is in, if `program_folder` is its bin;
// else empty.
std::string CarriedMpi(const std::string& program_folder);

// Lets this process and all that it starts use the Open MPI that is carried beside its program,
// whatever PATH and OPAL_PREFIX said; without one nothing changes. REQUIRES: one thread.
void PreferCarriedMpi();

}  // namespace weft
