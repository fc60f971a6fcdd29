# Run as a test by weft_suites.cmake: each suite of the binary has its entry, and each entry a suite.
execute_process(COMMAND ${BINARY} --gtest_list_tests OUTPUT_VARIABLE tests
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" found "${tests}")
list(TRANSFORM found REPLACE "\n|[.]$" "")
set(unnamed ${found})
set(missing ${SUITES})
list(REMOVE_ITEM unnamed ${SUITES})
list(REMOVE_ITEM missing ${found})
if(unnamed OR missing)
  message(FATAL_ERROR "${BINARY}: suites without an entry in CMakeLists.txt: ${unnamed}; "
    "entries without a suite: ${missing}")
endif()
