#!/usr/bin/env bash
# Prints what the compiler took for each kernel and architecture of a build: registers, bytes of
# stack, of shared and of local memory. Needs cuobjdump (deploy/cuda_tools.sh), no device.
#   bash bench/gpu/resources.sh [LIBRARY]       default: build/release/bin/libweft_cuda.so
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
library=${1:-build/release/bin/libweft_cuda.so}
PATH=$PWD/build/cuda_tools/nvidia/cu13/bin:$PATH
if ! command -v cuobjdump >/dev/null; then
  echo "weft: resources.sh: cuobjdump is not there; run bash deploy/cuda_tools.sh" >&2
  exit 2
fi
printf '%-9s %9s %5s %6s %5s  %s\n' target registers stack shared local kernel
cuobjdump -res-usage "$library" | c++filt | awk '
  /^arch = / {target = $3}
  / Function / {kernel = $0; sub(/ *Function /, "", kernel); sub(/^void /, "", kernel)
    gsub(/\(anonymous namespace\)::|weft::/, "", kernel); sub(/\(.*/, "", kernel)}
  /REG:/ {
    for (i = 1; i <= NF; i++) {split($i, of, ":"); value[of[1]] = of[2]}
    printf "%-9s %9d %5d %6d %5d  %s\n", target, value["REG"], value["STACK"], value["SHARED"], \
      value["LOCAL"], kernel
  }' | sort -k6,6 -k1,1
