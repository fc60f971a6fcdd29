#!/usr/bin/env bash
# Installs, builds and runs every test with ctest; ends with ctest's summary.
#   bash deploy/test.sh          release build, every test
#   bash deploy/test.sh --full   then the unit tests again under ASan+UBSan and under TSan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release)
case "${1:-}" in
  "") ;;
  --full) presets=(release asan tsan) ;;
  *)
    echo "weft: test.sh: unknown option '$1'; use --full or none" >&2
    exit 2
    ;;
esac

# Says what comes, and how long this has taken so far: what makes a run slow is seen in its output.
Begin() {
  echo "== $* (after $SECONDS s)"
}

Begin packages
bash deploy/install_packages.sh test
! command -v nvcc >/dev/null || bash deploy/cuda_tools.sh
. deploy/build.sh
for preset in "${presets[@]}"; do
  Begin build "$preset"
  Build "$preset"
done
# Variables of whoever runs this, which libraries read; tests set their own.
for name in $(compgen -e); do
  case $name in OPENBLAS_* | GOTO_* | OMP_* | GOMP_* | DNNL_* | ONEDNN_* | OMPI_MCA_* | PRTE_MCA_*) unset "$name" ;; esac
done
failed=()
for preset in "${presets[@]}"; do
  Begin test "$preset"
  ctest --preset "$preset" --parallel "$(nproc)" --no-tests=error || failed+=("$preset")
done
((${#failed[@]} == 0)) || exit 1
