// A libcuda.so.1 for hosts without a driver, so that cuDNN can plan for a device that is only
// described: what it asks a driver about a device is answered, code that it loads gets a handle,
// and every other entry point succeeds without doing anything (rest.cmake). Nothing can run.
// WEFT_STUB_DRIVER_SERVES=12040: a driver that serves CUDA up to 12.4.
#include "tests/gpu/stub_driver/driver.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

StubDevice device;
int anything = 0;  // what handles point to

// Finds an entry point of this library, which its user has loaded by path.
void* EntryPoint(const char* name) {
  static void* const self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  char newer[128];
  std::snprintf(newer, sizeof(newer), "%s_v2", name);
  void* const found = dlsym(self, newer);
  return found != nullptr ? found : dlsym(self, name);
}

template <typename Handle>
CUresult Give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&anything);
  return CUDA_SUCCESS;
}

}  // namespace

// NOLINTBEGIN: names are the driver's.
#undef cuGetProcAddress
extern "C" {
void WeftStubDevice(const StubDevice* described) {
  device = *described;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int, cuuint64_t) {
  *function = EntryPoint(symbol);
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  *function = EntryPoint(symbol);
  const bool found = *function != nullptr;
  if (result != nullptr) {
    *result = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
// NVRTC reads what it is given here: it must be told that there is nothing.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuDriverGetVersion(int* version) {
  const char* const served = std::getenv("WEFT_STUB_DRIVER_SERVES");
  *version = served == nullptr ? 13000 : std::atoi(served);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* ordinal, int) {
  *ordinal = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "%s", device.name);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = device.capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = device.capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = device.multiprocessors;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = device.shared_bytes;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return Give(context);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return Give(context);
}
CUresult cuCtxGetDevice(CUdevice* ordinal) {
  *ordinal = 0;
  return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return Give(library);
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  return Give(kernel);
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary) {
  return Give(module);
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) {
  return Give(function);
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  return Give(module);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return Give(module);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  return Give(function);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 1;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction, int, size_t,
                                                              unsigned) {
  *blocks = 1;
  return CUDA_SUCCESS;
}
}
// NOLINTEND
