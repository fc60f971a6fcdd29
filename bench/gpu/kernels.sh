#!/usr/bin/env bash
# What the kernels of a training step take on one GPU, by NVIDIA's ncu: of each its calls, its share
# of the time, and the rate at which it moves bytes of device memory (what norms and updates are
# judged by). First a table of what the device can do, by `weft calibrate`: the rate of a stream is
# what these rates are to be compared with. Runs from the folder that deploy/bundle.sh made.
#   bash kernels.sh [MODEL] [STEPS]      default: gpt2-124m in bf16, as many steps as it takes
# Kernels are counted from the 30,000th on, when products have chosen their algorithms: the steps
# must have 31,500. The run is ended with the last of these, without its checkpoint.
# OUT=FOLDER in the environment: what is printed and ncu's report are packed into
# FOLDER/kernels.tar.gz, however the script ends.
# Exit code 1: nothing was measured; 2: wrong call; 77: no device here.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/host_libraries.sh"
. "$here/models.sh"

# StepsOf FAMILY VOCABULARY WIDTH BLOCKS HEADS KV_HEADS FFN T MICRO_BATCH MICROBATCHES: of which a
# block has 20 kernels a microbatch at least, forward and backward.
StepsOf() {
  echo $((31500 / (20 * $4 * ${10}) + 2))
}

model=${1:-gpt2-124m}
# shellcheck disable=SC2086
steps=${2:-$(StepsOf ${shapes[$model]:-0 0 0 1 0 0 0 0 0 1})}
if [[ -z ${shapes[$model]:-} || ! $steps =~ ^[1-9][0-9]*$ ]]; then
  echo "kernels: usage: kernels.sh [MODEL] [STEPS], MODEL one of ${models[*]}" >&2
  exit 2
fi
ncu=$(command -v ncu || ls /usr/local/cuda*/bin/ncu 2>/dev/null | tail -1)

work=$(mktemp -d "${TMPDIR:-/tmp}/weft-kernels-XXXXXX")
Leave() {
  PackResults kernels "$work"
  rm -rf "$work"
}
trap Leave EXIT
KeepOutput "$work"
UnpackBundle "$work"
UseLibraries "$work" || exit 1
if ! nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.limit --format=csv,noheader; then
  echo "kernels: no NVIDIA device here"
  exit 77
fi
cat "$here/VERSION"
if timeout -k 5 90 "$weft_bin/weft" calibrate --backend cuda --slots 1 --seconds 15 --output "$work/calibrated.yaml"; then
  sed -n '/^device:/,/op_overhead_s/p' "$work/calibrated.yaml"
fi
if [[ -z $ncu ]]; then
  echo "kernels: ncu (Nsight Compute, with CUDA's toolkit) is not on this host"
  exit 1
fi
WriteCluster "$work"
WriteTokens "$work"
# shellcheck disable=SC2086
WriteJob "$work" "$work/$model" bf16 "$steps" ${shapes[$model]}
echo 'fault_tolerance: {max_restarts: 0}' >>"$work/$model/job.yaml"  # ncu ends the worker
own_libraries=$LD_LIBRARY_PATH
LD_LIBRARY_PATH=$host_library_path timeout -k 5 300 "$ncu" --target-processes all \
  --clock-control none --cache-control none --launch-skip 30000 --launch-count 1500 --kill yes \
  --metrics gpu__time_duration.sum,dram__bytes.sum --csv --print-units base \
  --log-file "$work/ncu.csv" env LD_LIBRARY_PATH="$own_libraries" \
  "$weft_bin/weft" run "$work/$model/job.yaml" >"$work/out" 2>&1
if [[ ! -s $work/ncu.csv ]]; then
  echo "kernels: ncu wrote no report: $(Cause "$work/out")"
  exit 1
fi
python3 - "$work/ncu.csv" <<'PY'
import collections, csv, re, sys
lines = [line for line in open(sys.argv[1], errors="replace") if line.startswith('"')]
calls, times, moved = collections.Counter(), collections.Counter(), collections.Counter()
for row in csv.DictReader(lines):
    name = row["Kernel Name"].replace("(anonymous namespace)::", "").replace("void ", "")
    name = re.sub(r"\(.*", "", name)[:70]
    value = float(row["Metric Value"].replace(",", ""))
    if row["Metric Name"] == "gpu__time_duration.sum":
        calls[name] += 1
        times[name] += value
    else:
        moved[name] += value
if not calls:
    sys.exit("kernels: ncu reported none: " + open(sys.argv[1], errors="replace").read()[-300:])
total = sum(times.values())
print(f"{'kernel':70} {'calls':>6} {'us each':>9} {'share':>6} {'GB/s':>6}")
for name, ns in times.most_common():
    print(f"{name:70} {calls[name]:6} {ns / calls[name] / 1e3:9.1f} {100 * ns / total:5.1f}% "
          f"{moved[name] / ns:6.0f}")
print(f"{sum(calls.values())} kernels, {total / 1e6:.1f} ms of them")
PY
