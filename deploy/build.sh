# shellcheck shell=bash
# Sourced by quickstart.sh and test.sh from the repository's root.

# Compilers that run at once: one per CPU this process may use, one per 1.5 GiB of memory (the
# generated gRPC code takes about 1 GiB to compile).
BuildJobs() {
  local cpus memory_mib by_memory
  cpus=$(nproc)
  memory_mib=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  by_memory=$((memory_mib / 1536))
  ((by_memory >= 1)) || by_memory=1
  echo $((cpus < by_memory ? cpus : by_memory))
}

# Build <preset> [target...]: configures and builds; on failure shows the compiler's output and
# stops with one sentence. Prints nothing but two lines when all is well.
Build() {
  local preset=$1
  shift
  local jobs targets=() log
  jobs=$(BuildJobs)
  (($# == 0)) || targets=(--target "$@")
  mkdir -p build
  log="build/$preset.log"
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "weft: cmake could not configure preset $preset; the log above is $log" >&2
    return 1
  fi
  echo "build: $preset with $jobs compilers at once"
  if ! cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}" 2>&1 |
    tee "$log" | Progress; then
    grep -A 20 -E '^FAILED|error:|No space left' "$log" | head -n 60 >&2
    echo "weft: the build of preset $preset failed; the whole log is $log" >&2
    return 1
  fi
  echo "build: $preset done"
}

# Reads ninja's lines ("[12/90] Building ..."): on a terminal shows them on one line, in a pipe
# every twentieth. Not awk: Debian's mawk reads pipes in large blocks.
Progress() {
  local line count=0
  while IFS= read -r line; do
    [[ $line == \[* ]] || continue
    if [[ -t 1 ]]; then
      printf '\r\033[K%.100s' "$line"
    elif ((count++ % 20 == 0)); then
      echo "build: ${line:0:100}"
    fi
  done
  if [[ -t 1 ]]; then printf '\r\033[K'; fi
}
