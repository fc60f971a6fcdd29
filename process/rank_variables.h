// The environment variables in which a process manager tells a process its rank, the first that is
// set wins: weft's own starter, PMIx (Open MPI's mpirun, srun --mpi=pmix), Open MPI, Slurm. The
// worker and the shim that stands in its place have to read the same one.
#pragma once
#include <array>

namespace weft {

inline constexpr std::array<const char*, 4> kRankVariables = {
    "WEFT_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
// The same for its number among the ranks of its host.
inline constexpr std::array<const char*, 3> kLocalRankVariables = {
    "WEFT_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};
// The host whose agent started it, by the name that the coordinator knows.
inline constexpr char kHostVariable[] = "WEFT_HOST";

// Settings of Open MPI that differ from host to host. mpirun gives each rank those of its own host;
// the agent of the rank's host sets ours for its shims, which hand them on in place of mpirun's.
struct HostsMpiSetting {
  const char* ours;
  const char* open_mpi;
};
inline constexpr HostsMpiSetting kSharedMemoryFolder = {"WEFT_MPI_SHARED_MEMORY",
                                                        "OMPI_MCA_btl_vader_backing_directory"};
inline constexpr HostsMpiSetting kSingleCopy = {"WEFT_MPI_SINGLE_COPY",
                                                "OMPI_MCA_btl_vader_single_copy_mechanism"};

// A file of NAME=VALUE, each ended by a NUL, that shims give to their ranks alone; not set: there
// is none.
inline constexpr char kRankEnvironmentVariable[] = "WEFT_RANK_ENVIRONMENT";

}  // namespace weft
