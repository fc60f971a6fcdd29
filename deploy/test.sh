#!/usr/bin/env bash
# Installs, builds and runs tests; ends with what took longest and with ctest's summary.
#   bash deploy/test.sh               the gate: everything that a change can break, the same each time
#   bash deploy/test.sh --all         and after it every part below, one after the other
#   bash deploy/test.sh --all PART    one part: each takes 90 minutes at most on two cores
# Parts: random (other seeds, printed; more faults, hangs, damaged files and layouts), kernels
# (OpenBLAS's other sets of kernels), cuda (machine code for every target), asan, tsan.
# tests/README.md says what each proves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly all_parts=(random kernels cuda asan tsan)
Usage() {
  echo "weft: test.sh: unknown $1; use --all, --all with one of ${all_parts[*]}, or none" >&2
  exit 2
}
parts=(gate)
(($# <= 2)) || Usage "option '$3'"
case "${1:-}" in
  "") ;;
  --all)
    parts=(gate "${all_parts[@]}")
    if (($# == 2)); then
      [[ " ${all_parts[*]} " == *" $2 "* ]] || Usage "part '$2'"
      parts=("$2")
    fi
    ;;
  *) Usage "option '$1'" ;;
esac

# Says what comes, and how long this has taken so far: what makes a run slow is seen in its output.
Begin() {
  echo "== $* (after $SECONDS s)"
}

Begin packages
bash deploy/install_packages.sh test
! command -v nvcc >/dev/null || bash deploy/cuda_tools.sh
. deploy/build.sh
# Variables of whoever runs this, which libraries read; tests set their own.
for name in $(compgen -e); do
  case $name in OPENBLAS_* | GOTO_* | OMP_* | GOMP_* | DNNL_* | ONEDNN_* | OMPI_MCA_* | PRTE_MCA_*) unset "$name" ;; esac
done

# Tests <preset> <what> [ctest's options...]: runs them, and says what took longest. A test counts in
# halves of a processor (cmake/weft_targets.cmake).
Tests() {
  local preset=$1 what=$2 code=0
  shift 2
  Begin test "$what"
  rm -f "build/$what.xml"
  ctest --preset "$preset" --parallel $((2 * $(nproc))) --no-tests=error \
    --output-junit "$PWD/build/$what.xml" "$@" || code=$?
  ctest --preset "$preset" --show-only=json-v1 >"build/$what.json"
  python3 deploy/report_tests.py "build/$what.xml" "build/$what.json" || code=1
  return "$code"
}

# The gate skips no test of processes or hosts: what these need is installed. CUDA's kernels are compiled
# for the oldest target and for the one with its own path.
Gate() {
  Begin build gate
  Build gate || return
  WEFT_GATE=1 Tests gate gate -LE '^(long|kernels)$'
}

# Entries of the label `long` draw their seeds and say which; their counts are what 90 minutes have room
# for.
Random() {
  Begin build gate
  Build gate || return
  local seed=$((RANDOM * 32768 + RANDOM)) code=0
  echo "WEFT_FUZZ_SEED=$seed"
  export WEFT_FUZZ_SEED=$seed
  Tests gate random -L '^long$' || code=1
  Begin layouts of seed "$seed"
  build/release/bin/weft_layout_matrix --seed "$seed" --count 15 || code=1
  return "$code"
}

Kernels() {
  Begin build gate
  Build gate || return
  Tests gate kernels -L '^kernels$'
}

# In a folder of its own: the libraries of every target are not those that other tests load.
Cuda() {
  Begin build cuda
  Build cuda weft_cuda machine_code_test || return
  Tests cuda cuda -R MachineCode
}

Sanitized() {
  Begin build "$1"
  Build "$1" || return
  Tests "$1" "$1"
}

failed=()
for part in "${parts[@]}"; do
  case $part in
    gate) Gate ;;
    random) Random ;;
    kernels) Kernels ;;
    cuda) Cuda ;;
    asan | tsan) Sanitized "$part" ;;
  esac || failed+=("$part")
done
((${#failed[@]} == 0)) || {
  echo "weft: test.sh: failed: ${failed[*]} (after $SECONDS s)" >&2
  exit 1
}
Begin done
