# Writes ${OUTPUT} with version and commit, only when they changed: so a build after a commit
# compiles one file again, and any other build none.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)  # built from an archive, without git
endif()
set(text "#pragma once
namespace weft {
inline constexpr char kBuildVersion[] = \"${VERSION}\";
inline constexpr char kBuildCommit[] = \"${commit}\";
}  // namespace weft
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
