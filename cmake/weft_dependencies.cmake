# Everything from Debian 12's packages; deploy/packages.txt installs them. Imported targets are
# SYSTEM includes, so our warning flags do not apply to them.
include(GoogleTest)
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark QUIET)  # for bench/search_bench alone
find_package(gRPC CONFIG QUIET)
if(NOT gRPC_FOUND)
  pkg_check_modules(grpcpp REQUIRED IMPORTED_TARGET grpc++)
  add_library(gRPC::grpc++ ALIAS PkgConfig::grpcpp)
endif()
find_library(WEFT_GRPC_REFLECTION grpc++_reflection REQUIRED)
find_program(WEFT_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(openssl REQUIRED IMPORTED_TARGET openssl)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_package(simdjson REQUIRED)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)

# CPU backend. The openmp flavour of OpenBLAS: the pthread one and libgomp spin against each other.
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
find_package(MPI REQUIRED COMPONENTS C)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# CUDA backend: built when a toolkit with NCCL and cuDNN is found (nvcc on PATH is enough).
find_program(WEFT_NVCC nvcc)
set(weft_cuda_default OFF)
if(WEFT_NVCC)
  get_filename_component(weft_nvcc_real ${WEFT_NVCC} REALPATH)
  get_filename_component(weft_cuda_bin ${weft_nvcc_real} DIRECTORY)
  get_filename_component(weft_cuda_root ${weft_cuda_bin} DIRECTORY)
  find_path(WEFT_NCCL_INCLUDE nccl.h HINTS ${weft_cuda_root}/include)
  find_library(WEFT_NCCL_LIBRARY NAMES nccl libnccl.so.2
               HINTS ${weft_cuda_root}/lib ${weft_cuda_root}/lib64)
  find_library(WEFT_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13
               HINTS ${weft_cuda_root}/lib ${weft_cuda_root}/lib64)
  find_path(WEFT_CUDNN_INCLUDE cudnn.h HINTS ${weft_cuda_root}/include)
  find_library(WEFT_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
               HINTS ${weft_cuda_root}/lib ${weft_cuda_root}/lib64)
  if(WEFT_NCCL_INCLUDE AND WEFT_NCCL_LIBRARY AND WEFT_CUBLASLT_LIBRARY AND
     WEFT_CUDNN_INCLUDE AND WEFT_CUDNN_LIBRARY)
    set(weft_cuda_default ON)
  endif()
endif()
option(WEFT_CUDA "Build the CUDA backend" ${weft_cuda_default})
# The oldest and the most used device are enough for deploy/test.sh: each target takes as long as the
# next to compile, and kernels differ by what these two can do.
set(WEFT_CUDA_TARGETS all CACHE STRING "all: every device that weft supports; few: two, for tests")
if(WEFT_CUDA)
  set(CMAKE_CUDA_COMPILER ${WEFT_NVCC})
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
    if(WEFT_CUDA_TARGETS STREQUAL all)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 89-real 100-real 80-virtual)
    endif()
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
endif()
