#!/usr/bin/env bash
# Two worker processes of a real `weft run` on the emulated device, left alone, and with one killed.
# Usage: run_test.sh BIN_FOLDER BACKEND WAY
# WAY: "mapped memory" between processes that share the device; "NCCL" (the fake one) between
# processes with a device each, whose id travels through the coordinator.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/emulated_run.sh"
CopyPrograms emulated "$1" "$2"
if [[ $3 == NCCL ]]; then export WEFT_EMULATED_DEVICES=own; fi
OUT=$folder/results bash "$(dirname "${BASH_SOURCE[0]}")/../check.sh" --processes "$folder" | tee "$folder/table"
packed=$(tar -tzf "$folder/results/check.tar.gz")
for file in ./output.txt ./left_alone/run/metrics.jsonl ./killed/out; do
  grep -qx "$file" <<<"$packed" || {
    echo "run_test.sh: the archive lacks $file"
    exit 1
  }
done
grep -q "steps; $3" "$folder/table" || {
  echo "run_test.sh: the ranks were not reached by $3"
  exit 1
}
if grep -q "begin in any order" "$folder/table"; then
  echo "run_test.sh: the worker did not ask NCCL for the order of calls"
  exit 1
fi
grep -q "products timed *passed" "$folder/table" || {
  echo "run_test.sh: the job with timed products did not pass"
  exit 1
}
grep -q "CUDA graphs *passed" "$folder/table" || {
  echo "run_test.sh: the job with CUDA graphs did not pass"
  exit 1
}
grep -q "NCCL, two ranks on one GPU *passed" "$folder/table" || {
  echo "run_test.sh: the job over NCCL with a shared device did not pass"
  exit 1
}
