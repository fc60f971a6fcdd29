# cmake -DNM=... -DDRIVER=<the toolkit's stubs/libcuda.so> -DOUT=rest.cc -P rest.cmake
# Writes a function that does nothing for each entry point of the driver; weak, so that those of
# driver.cc win.
execute_process(COMMAND ${NM} -D --defined-only ${DRIVER}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T cu[A-Za-z0-9_]+" names "${symbols}")
set(text "// Made by tests/gpu/stub_driver/rest.cmake.\n")
foreach(name ${names})
  string(REPLACE " T " "" name "${name}")
  string(APPEND text "extern \"C\" __attribute__((weak)) int ${name}() { return 0; }\n")
endforeach()
file(WRITE ${OUT} "${text}")
