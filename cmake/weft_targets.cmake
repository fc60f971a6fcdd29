# weft_library(plan SOURCES ... PUBLIC ... PRIVATE ... [ONE_BY_ONE]): static library weft_plan, alias
# weft::plan.
# weft_executable(weft SOURCES main.cc PRIVATE ...)
# weft_test(plan_test LABEL unit SOURCES ... PRIVATE ...): one GoogleTest binary, one ctest entry per
# TEST. More of it in weft_test itself.
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
# it uses. CMake's own UNITY_BUILD writes absolute paths, so that a clone elsewhere would find nothing
# in the compiler cache.
option(WEFT_UNITY "Compile the sources of a target eight at a time" ON)
set(WEFT_SOURCES_AT_A_TIME 8)
if(NOT WEFT_UNITY)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
if(WEFT_UNITY)
  # A class of a .cc file that holds one of its anonymous namespace looks like a header's then.
  list(APPEND WEFT_WARNINGS -Wno-subobject-linkage)
endif()

# weft_batches(OUT NAME source...): files that include the C++ sources, eight each, and the others as
# they are.
function(weft_batches out name)
  set(batches "")
  set(text "")
  set(number 0)
  set(in_batch 0)
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
    if(NOT WEFT_UNITY OR NOT source MATCHES "[.]cc$" OR path MATCHES "^[.][.]/")
      list(APPEND batches ${source})
      continue()
    endif()
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR in_batch "${in_batch} + 1")
    if(in_batch EQUAL WEFT_SOURCES_AT_A_TIME)
      weft_write_batch(batches ${name} number text)
      set(in_batch 0)
    endif()
  endforeach()
  if(in_batch GREATER 0)
    weft_write_batch(batches ${name} number text)
  endif()
  set(${out} ${batches} PARENT_SCOPE)
endfunction()
macro(weft_write_batch batches name number text)
  set(batch ${CMAKE_CURRENT_BINARY_DIR}/${name}_${${number}}.cc)
  file(CONFIGURE OUTPUT ${batch} CONTENT "${${text}}" @ONLY)
  list(APPEND ${batches} ${batch})
  math(EXPR ${number} "${${number}} + 1")
  set(${text} "")
endmacro()

# Folders of code that waits, for disks, networks, processes and people, or that runs once a job.
# Release compiles it with -O1 instead of -O3, which takes a third less time; a mutation of
# control_bench costs weftd 0.95 to 1.03 of the processor time. The tests' own sources are run once
# and compiled often. gemm_bench measures a loop of its own.
set(WEFT_COLD_FOLDERS bench coordinator launcher plan/explain plan/keys process proto tests worker/process)
set(WEFT_COLD_TARGETS weft-worker)
set(WEFT_HOT_TARGETS gemm_bench)
function(weft_optimise target)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(JOIN WEFT_COLD_FOLDERS "|" cold)
  if((target IN_LIST WEFT_COLD_TARGETS OR "${folder}/" MATCHES "^(${cold})/")
     AND NOT target IN_LIST WEFT_HOT_TARGETS)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

function(weft_library name)
  cmake_parse_arguments(arg "ONE_BY_ONE" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT arg_ONE_BY_ONE)
    weft_batches(arg_SOURCES weft_${name} ${arg_SOURCES})
  endif()
  add_library(weft_${name} STATIC ${arg_SOURCES})
  add_library(weft::${name} ALIAS weft_${name})
  weft_optimise(weft_${name})
  target_include_directories(weft_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(weft_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${WEFT_WARNINGS}>")
  target_link_libraries(weft_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

function(weft_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  weft_batches(sources ${name} ${arg_SOURCES})
  add_executable(${name} ${sources})
  weft_optimise(${name})
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

# ctest counts in halves of a processor (deploy/test.sh: `--parallel` is twice their number): a test
# that computes takes two, one that mostly waits takes one, so that a waiting test always has company.
set(WEFT_HALVES_OF_A_COMPUTING_TEST 2)
set(WEFT_HALVES_OF_A_WAITING_TEST 1)

# weft_test_properties(OUT LABEL unit [TIMEOUT seconds] [WAITS] [LANE name] [ALONE] [COST seconds]): the
# properties of a ctest entry, as a list.
#   WAITS    it waits more than it computes
#   LANE     entries of one lane run one after the other, beside everything else
#   ALONE    nothing runs beside it: its verdict is a time. Say why where this stands
#   COST     about what it takes, where that is long: the longest begin first
function(weft_test_properties out)
  cmake_parse_arguments(arg "WAITS;ALONE" "LABEL;TIMEOUT;LANE;COST" "" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tests know nothing of ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)  # many times what any takes alone: machines are busy, or slow
  endif()
  if(WEFT_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")  # a sanitizer slows code 2 to 15 times
  endif()
  set(halves ${WEFT_HALVES_OF_A_COMPUTING_TEST})
  if(arg_WAITS)
    set(halves ${WEFT_HALVES_OF_A_WAITING_TEST})
  endif()
  # Never the state folder of whoever runs the tests. OpenBLAS's kernels also where a test links the CPU
  # backend, instead of loading it; a property of its own, as gtest_discover_tests cuts lists.
  set(properties LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${halves}
    ENVIRONMENT "XDG_STATE_HOME=${PROJECT_BINARY_DIR}/state"
    ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=unset:")
  if(WEFT_BLAS_KERNELS)
    list(APPEND properties ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=set:${WEFT_BLAS_KERNELS}")
  endif()
  if(arg_LANE)
    list(APPEND properties RESOURCE_LOCK ${arg_LANE})
  endif()
  if(arg_ALONE)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(arg_COST)
    list(APPEND properties COST ${arg_COST})
  endif()
  set(${out} ${properties} PARENT_SCOPE)
endfunction()

# Sources of tests are compiled with the same flags, -fPIC and -pthread too where one would do without:
# what most of them include first is then read once for all (tests/CMakeLists.txt).
function(weft_compile_as_test target)
  weft_optimise(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${WEFT_WARNINGS} -fPIC -pthread)
  target_link_libraries(${target} PRIVATE weft::places GTest::gmock)
  target_precompile_headers(${target} REUSE_FROM weft_places)
endfunction()

# weft_test_objects(operation_tests SOURCES ... PRIVATE ...): sources of tests that several binaries run,
# compiled once. A weft_test has them by weft::operation_tests among its PRIVATE.
function(weft_test_objects name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  weft_batches(sources weft_${name} ${arg_SOURCES})
  add_library(weft_${name} OBJECT ${sources})
  add_library(weft::${name} ALIAS weft_${name})
  weft_compile_as_test(weft_${name})
  target_link_libraries(weft_${name} PRIVATE ${arg_PRIVATE})
endfunction()

# lld links a test in a tenth of the default linker's time; where it is missing, that one does.
find_program(WEFT_LLD ld.lld)

# The binary of tests. Its entries in ctest are weft_test()'s, or weft_suite_test()'s.
function(weft_test_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  weft_batches(sources ${name} ${arg_SOURCES})
  add_executable(${name} ${sources})
  weft_compile_as_test(${name})
  target_link_libraries(${name} PRIVATE ${arg_PRIVATE} GTest::gtest_main)
  # There are some 80 of these binaries.
  if(WEFT_LLD)
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# weft_kernel_tests(NAME filter properties): the tests of the filter once more under each other set of
# OpenBLAS's kernels, as "NAME.under.<kernels>", label `kernels`.
function(weft_kernel_tests name filter properties)
  foreach(kernels ${WEFT_BLAS_KERNEL_SETS})
    add_test(NAME ${name}.under.${kernels} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}.under.${kernels} PROPERTIES ${properties} LABELS kernels
      ENVIRONMENT_MODIFICATION "OPENBLAS_CORETYPE=set:${kernels}")  # the last one counts
  endforeach()
endfunction()

# weft_test(NAME LABEL unit SOURCES ... PRIVATE ... [KERNELS filter] [LONG filter] [properties]): one
# GoogleTest binary, one ctest entry per TEST, with weft_test_properties.
#   KERNELS  tests that promise something of bits: weft_kernel_tests
#   LONG     tests that are no part of the gate: label `long`
# Properties stand before SOURCES. deploy/test.sh leaves the labels `kernels` and `long` out; `--all` runs them.
function(weft_test name)
  cmake_parse_arguments(arg "" "LABEL;KERNELS;LONG" "SOURCES;PRIVATE" ${ARGN})
  weft_test_binary(${name} SOURCES ${arg_SOURCES} PRIVATE ${arg_PRIVATE})
  weft_test_properties(properties LABEL ${arg_LABEL} ${arg_UNPARSED_ARGUMENTS})
  if(arg_KERNELS)
    weft_kernel_tests(${name} "${arg_KERNELS}" "${properties}")
  endif()
  set(of_the_gate "")
  if(arg_LONG)
    weft_test_properties(long LABEL long ${arg_UNPARSED_ARGUMENTS})
    gtest_discover_tests(${name} NO_PRETTY_VALUES TEST_FILTER "${arg_LONG}" TEST_LIST ${name}_long
      PROPERTIES ${long} DISCOVERY_TIMEOUT 60)
    set(of_the_gate TEST_FILTER "-${arg_LONG}")
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES ${of_the_gate} PROPERTIES ${properties}
    DISCOVERY_TIMEOUT 60)
endfunction()

include(weft_suites)
