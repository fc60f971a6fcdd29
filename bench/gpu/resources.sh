#!/usr/bin/env bash
# Compiles every kernel for every target, warnings as errors, and writes what ptxas says of each:
# registers, shared memory, stack (arrays that are not in registers, and spills). Needs nvcc, no device; ten minutes where two cores are free.
#   bash bench/gpu/resources.sh [REPORT]       default: bench/gpu/resources.txt
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
report=${1:-bench/gpu/resources.txt}
targets=(80 89 90a 100)
flags=(-std=c++17 -O3 -ftz=true -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror -I.)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for target in "${targets[@]}"; do
  for source in worker/backend/cuda/*.cu; do
    log=$work/$(basename "$source" .cu).$target
    if ! nvcc "${flags[@]}" -gencode "arch=compute_$target,code=sm_$target" -Xptxas -v \
      -c "$source" -o "$work/object" >"$log" 2>&1; then
      cat "$log" >&2
      echo "weft: resources.sh: $source does not compile for sm_$target" >&2
      exit 1
    fi
  done
done

# One line per kernel and target: registers of a thread, bytes of static shared memory, of a thread's
# stack, and spilled.
{
  for log in "$work"/*.*; do
    [[ $log == "$work/object" ]] && continue
    name=$(basename "$log")
    c++filt <"$log" | awk -v file="${name%.*}" -v target="sm_${name##*.}" '
      /Compiling entry function/ {
        kernel = $0
        sub(/.*Compiling entry function ./, "", kernel)
        sub(/. for .sm_.*/, "", kernel)
      }
      /bytes spill stores/ {stack = $1; spills = $5 + $9}
      /Used [0-9]+ registers/ {
        registers = 0; shared = 0
        for (i = 1; i < NF; i++) {
          if ($i == "Used") registers = $(i + 1)
          if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
        }
        printf "%-23s %-7s %5d %7d %6d %7d  %s\n", file, target, registers, shared, stack, spills, \
          kernel
      }'
  done | sed -e 's/(anonymous namespace):://g; s/weft:://g; s/  void /  /' \
    -e 's/([A-Za-z_0-9]*)\([0-9]\)/\1/g; s/(.*//' | sort
} >"$work/lines"
# One line per kernel: the targets beside each other.
{
  nvcc --version | sed -n 's/^Build /# nvcc: /p'
  echo "# One line per kernel; a/b/c/d: sm_100, sm_80, sm_89, sm_90a, where they differ."
  printf '%-15s %-15s %-15s %-15s %-23s %s\n' "# regs" shared stack spills file kernel
  awk '
      {
        kernel = $7
        for (i = 8; i <= NF; i++) kernel = kernel " " $i
        key = sprintf("%-23s %s", $1, kernel)
        key = key SUBSEP (++seen[key, $2])
        if (!(key in known)) known[key] = ++count
        keys[known[key]] = key
        for (i = 3; i <= 6; i++) value[key, i] = value[key, i] (value[key, i] == "" ? "" : "/") $i
      }
      END {
        for (k = 1; k <= count; k++) {
          line = ""
          for (i = 3; i <= 6; i++) {
            n = split(value[keys[k], i], each, "/")
            same = 1
            for (j = 2; j <= n; j++) same = same && each[j] == each[1]
            line = line sprintf("%-15s ", same ? each[1] : value[keys[k], i])
          }
          split(keys[k], name, SUBSEP)
          print line name[1]
        }
      }
    ' "$work/lines"
} >"$report"
echo "resources: $(grep -vc '^#' "$report") kernels in $report," \
  "$(awk '!/^#/ && $4 != 0' "$report" | wc -l) of them spill registers," \
  "$(awk '!/^#/ && $3 != 0' "$report" | wc -l) have a stack"
