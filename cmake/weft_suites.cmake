# weft_suite_test(hosts_test LABEL hosts LANE waiting_2 SOURCES ... PRIVATE ...
#                 SUITES HostsRun:90 Offers:30 [DRAWS "suite VARIABLE=value..."...] [BY_HAND suite...] [KERNELS filter])
# One GoogleTest binary, one ctest entry per suite of it, "hosts_test.HostsRun": its tests are run by
# one process, one after the other, and share what is dear to make, as a bed or a curve. Beside each
# suite stand the seconds that it takes alone on two cores; its time limit follows from them.
# Entries of a lane never run beside each other, those of different lanes do: they wait for most of
# their time. There are two lanes, waiting_1 and waiting_2, of about the same length: on two processors a
# third would starve the others' ranks. What is longest begins first. "hosts_test.suites" fails where the
# binary has a suite that is not named, or none of a name.
#   DRAWS    once more with these variables, which ask for other seeds and more: "<entry>.drawn"
#   BY_HAND  suites that are no part of the gate
# Both have the label `long`, for `deploy/test.sh --all random`.
function(weft_suite_test name)
  cmake_parse_arguments(arg "" "LABEL;LANE;KERNELS" "SOURCES;PRIVATE;SUITES;DRAWS;BY_HAND" ${ARGN})
  weft_test_binary(${name} SOURCES ${arg_SOURCES} PRIVATE ${arg_PRIVATE})
  set(lane_seconds 0)
  set(names ${arg_BY_HAND})
  foreach(suite ${arg_SUITES})
    string(REGEX MATCH "^([^:]+):([0-9]+)$" matched "${suite}")
    if(NOT matched)
      message(FATAL_ERROR "${name}: ${suite} is no suite and its seconds; write HostsRun:90")
    endif()
    list(APPEND names ${CMAKE_MATCH_1})
    math(EXPR lane_seconds "${lane_seconds} + ${CMAKE_MATCH_2}")
  endforeach()
  foreach(suite ${arg_SUITES})
    string(REGEX MATCH "^([^:]+):([0-9]+)$" matched "${suite}")
    set(suite ${CMAKE_MATCH_1})
    # Beside two busy loops per core and three other lanes a suite takes up to nine times as long.
    math(EXPR timeout "${CMAKE_MATCH_2} * 8 + 300")
    weft_suite_entry(${name}.${suite} ${name} ${suite} LABEL ${arg_LABEL} TIMEOUT ${timeout} WAITS LANE ${arg_LANE}
      COST ${lane_seconds})
  endforeach()
  foreach(suite ${arg_BY_HAND})
    weft_suite_entry(${name}.${suite} ${name} ${suite} LABEL long TIMEOUT 5400 WAITS LANE ${arg_LANE})
  endforeach()
  foreach(draw ${arg_DRAWS})
    separate_arguments(variables UNIX_COMMAND "${draw}")
    list(POP_FRONT variables suite)
    set(entry ${name}.${suite}.drawn)
    weft_suite_entry(${entry} ${name} ${suite} LABEL long TIMEOUT 5400 WAITS LANE ${arg_LANE})
    set_property(TEST ${entry} APPEND PROPERTY ENVIRONMENT ${variables})
  endforeach()
  weft_test_properties(properties LABEL ${arg_LABEL} WAITS LANE ${arg_LANE})
  if(arg_KERNELS)
    weft_kernel_tests(${name} "${arg_KERNELS}" "${properties}")
  endif()
  add_test(NAME ${name}.suites COMMAND ${CMAKE_COMMAND} -D "BINARY=$<TARGET_FILE:${name}>"
    -D "SUITES=${names}" -P ${PROJECT_SOURCE_DIR}/cmake/check_suites.cmake)
  set_tests_properties(${name}.suites PROPERTIES ${properties})
endfunction()

# weft_suite_entry(ENTRY BINARY SUITE properties...)
function(weft_suite_entry entry binary suite)
  weft_test_properties(properties ${ARGN})
  add_test(NAME ${entry} COMMAND ${binary} --gtest_filter=${suite}.*)
  # A test that is skipped marks the entry as skipped, if none of the others has failed: then the list
  # of the skipped ones is the last that GoogleTest says.
  set_tests_properties(${entry} PROPERTIES ${properties}
    SKIP_REGULAR_EXPRESSION "tests?, listed below:\n(\\[  SKIPPED \\] [^\n]*\n?)+$")
endfunction()
