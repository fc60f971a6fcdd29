// Messages over MPI. The only file of weft that includes mpi.h is mpi_transport.cc.
#pragma once
#include <cstdint>
#include <memory>

#include "worker/backend/cpu/comm/transport.h"
#include "worker/backend/device.h"

namespace weft {

// Starts MPI in this process, which mpirun or srun must have started; collective, once a process.
// DeadlineExceeded if the other processes are not there within `timeout_ms`: MPI then still waits
// for them, and the process must end without FinalizeMpi.
BackendStatus OpenMpiTransport(int64_t timeout_ms, std::unique_ptr<Transport>* transport);

// Orderly end; collective; after the transport is gone.
void FinalizeMpi();

// "Open MPI 4.1.4"; before or after OpenMpiTransport.
const char* MpiVersion();

}  // namespace weft
