# weft_library(plan SOURCES ... PUBLIC ... PRIVATE ...): static library weft_plan, alias weft::plan.
# weft_executable(weft SOURCES main.cc PRIVATE ...)
# weft_test(plan_test LABEL unit SOURCES ... PRIVATE ... [TIMEOUT seconds] [PROCESSORS n]
#           [RUN_SERIAL] [KERNELS filter]): one GoogleTest binary, one ctest entry per TEST. The tests
#           of the filter, which promise something of bits, are run once more under each set of
#           OpenBLAS's kernels, as "<name>.under.<kernels>".
# -Wrestrict: g++ 12 reports `"text" + std::string()` falsely at -O2 (gcc.gnu.org/PR105651).
set(WEFT_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-restrict -Werror)
if(WEFT_SANITIZE)
  # g++ 12 sees uninitialized members of std::regex once ASan instruments it; there are none.
  list(APPEND WEFT_WARNINGS -Wno-maybe-uninitialized)
endif()
if(WEFT_SANITIZE MATCHES thread)
  # TSan does not see fences. Ours order pages of memory that other processes read.
  list(APPEND WEFT_WARNINGS -Wno-tsan)
endif()

# Sources of one target are compiled eight at a time: most of a compilation is reading the headers of
# gRPC, protobuf and GoogleTest. OFF compiles each source alone, which tells whether it includes what
# it uses.
option(WEFT_UNITY "Compile the sources of a target eight at a time" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(WEFT_UNITY)
  # A class of a .cc file that holds one of its anonymous namespace looks like a header's then.
  list(APPEND WEFT_WARNINGS -Wno-subobject-linkage)
endif()

function(weft_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(weft_${name} STATIC ${arg_SOURCES})
  add_library(weft::${name} ALIAS weft_${name})
  set_target_properties(weft_${name} PROPERTIES UNITY_BUILD ${WEFT_UNITY})
  target_include_directories(weft_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(weft_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${WEFT_WARNINGS}>")
  target_link_libraries(weft_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

function(weft_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${WEFT_UNITY})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${WEFT_WARNINGS})
  target_link_libraries(${name} PRIVATE ${arg_PRIVATE})
endfunction()

# The kernels of OpenBLAS that a worker asks for on this machine (worker/backend/blas_kernels.h), "-"
# for OpenBLAS's own choice, and after them the sets that tests are run under as far as this processor
# executes them: two for AVX2, one for AVX-512.
try_run(WEFT_BLAS_KERNELS_STATUS WEFT_BLAS_KERNELS_BUILT
  SOURCE_FROM_CONTENT print_blas_kernels.cc [[
#include <cstdio>
#include "worker/backend/blas_kernels.h"
int main() {
  const auto features = weft::FeaturesOfThisProcessor();
  const char* const own = weft::BlasKernelsFor(features);
  std::fputs(*own == 0 ? "-" : own, stdout);
  for (const char* kernels : {"Haswell", "Zen", "SkylakeX"}) {
    if (weft::ChooseBlasKernels(features, kernels).kernels == kernels) std::printf(";%s", kernels);
  }
}
]]
  SOURCES ${PROJECT_SOURCE_DIR}/worker/backend/blas_kernels.cc ${PROJECT_SOURCE_DIR}/worker/backend/processor.cc
  NO_CACHE  # a result of the cache has no output
  CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}
  CXX_STANDARD 20
  COMPILE_OUTPUT_VARIABLE weft_build_output
  RUN_OUTPUT_VARIABLE WEFT_BLAS_KERNEL_SETS)
if(NOT WEFT_BLAS_KERNELS_BUILT OR NOT WEFT_BLAS_KERNELS_STATUS EQUAL 0)
  message(FATAL_ERROR "no answer from worker/backend/blas_kernels.cc: ${weft_build_output}")
endif()
list(POP_FRONT WEFT_BLAS_KERNEL_SETS WEFT_BLAS_KERNELS)
if(WEFT_BLAS_KERNELS STREQUAL "-")
  set(WEFT_BLAS_KERNELS "")
endif()
list(REMOVE_ITEM WEFT_BLAS_KERNEL_SETS "${WEFT_BLAS_KERNELS}")

# The binary of tests. Its entries in ctest are weft_test()'s, or weft_suite_test()'s.
function(weft_test_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${WEFT_UNITY})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # The tests' own sources are run once and compiled often: a quarter less to compile than at -O3.
  target_compile_options(${name} PRIVATE ${WEFT_WARNINGS} $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE
    WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" WEFT_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_PRIVATE} GTest::gmock GTest::gtest_main)
endfunction()

# Sets `out` to the properties that each entry of a test has.
function(weft_test_properties out)
  cmake_parse_arguments(arg "RUN_SERIAL" "LABEL;TIMEOUT;PROCESSORS" "" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)  # many times what any takes alone: machines are busy, or slow
  endif()
  if(WEFT_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")  # a sanitizer slows code 2 to 15 times
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  # Never the state folder of whoever runs the tests. OpenBLAS's kernels also where a test links the
  # CPU backend, instead of loading it; a property of its own, as gtest_discover_tests cuts lists.
  set(properties LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS}
    ENVIRONMENT "XDG_STATE_HOME=${PROJECT_BINARY_DIR}/state")
  if(arg_RUN_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(WEFT_BLAS_KERNELS)
    list(APPEND properties ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=set:${WEFT_BLAS_KERNELS}")
  else()
    list(APPEND properties ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=unset:")
  endif()
  set(${out} ${properties} PARENT_SCOPE)
endfunction()

# The tests of the filter once more under each other set of OpenBLAS's kernels.
function(weft_kernel_tests name filter properties)
  foreach(kernels ${WEFT_BLAS_KERNEL_SETS})
    add_test(NAME ${name}.under.${kernels} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}.under.${kernels} PROPERTIES ${properties}
      ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=set:${kernels}")  # the last one counts
  endforeach()
endfunction()

function(weft_test name)
  cmake_parse_arguments(arg "RUN_SERIAL" "LABEL;TIMEOUT;PROCESSORS;KERNELS" "SOURCES;PRIVATE" ${ARGN})
  weft_test_binary(${name} SOURCES ${arg_SOURCES} PRIVATE ${arg_PRIVATE})
  set(serial)
  if(arg_RUN_SERIAL)
    set(serial RUN_SERIAL)
  endif()
  weft_test_properties(properties LABEL ${arg_LABEL} TIMEOUT ${arg_TIMEOUT}
    PROCESSORS ${arg_PROCESSORS} ${serial})
  if(arg_KERNELS)
    weft_kernel_tests(${name} "${arg_KERNELS}" "${properties}")
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
endfunction()

include(weft_suites)
