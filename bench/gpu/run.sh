#!/usr/bin/env bash
# Trains GPT-2 and Llama shapes for some steps on one GPU and prints tokens/s and MFU, with PyTorch
# on the same model and batch in the same minutes where it can be imported: eager and compiled, with
# its fused attention. Runs from the folder that deploy/bundle.sh made (there: bench.sh).
#   bash bench.sh [--logs FOLDER] [PRECISION] [MODEL...]      default: bf16, all models
# PRECISION: bf16, fp8, fp32; PyTorch's row beside fp8 is of bf16. --logs keeps each run's output, log and metrics in FOLDER.
# OUT=FOLDER in the environment: what is printed and those logs are packed into FOLDER/bench.tar.gz,
# however the script ends.
# WEFT_ATTENTION=own or cudnn in the environment: only weft's own attention kernels, or only cuDNN's;
# by default cuDNN where it serves. Beneath each row: by what it was computed.
# Models whose steps are short are trained with CUDA graphs too (rows "graphs").
# MFU: tokens/s x (6 N + 12 L q T) over the device's dense peak of that precision, where N counts
# matrix parameters with the head, L blocks, q = heads x head size, T the sequence. For bf16 and
# fp8 the peak is 989.5 TFLOP/s, for fp32 67 TFLOP/s (H100 and H200 SXM). Tokens/s: median over steps 6 and
# later.
# Exit code 0: every row was measured; 1: one failed; 2: wrong call; 77: no device here.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/host_libraries.sh"
. "$here/models.sh"

with_graphs=" gpt2-124m-1k gpt2-124m "
steps=20

Refuse() {
  echo "bench: $1" >&2
  exit 2
}

logs=
precision=bf16
while (($# > 0)); do
  case $1 in
    --logs)
      [[ -n ${2:-} ]] || Refuse "--logs needs a folder"
      logs=$2
      shift
      ;;
    bf16 | fp8 | fp32) precision=$1 ;;
    -*) Refuse "$1 is unknown; use --logs FOLDER" ;;
    *) break ;;
  esac
  shift
done
for model in "$@"; do
  [[ -n ${shapes[$model]:-} ]] || Refuse "$model is unknown; use bf16, fp8 or fp32, then some of ${models[*]}"
done
(($# > 0)) && models=("$@")

work=$(mktemp -d "${TMPDIR:-/tmp}/weft-bench-XXXXXX")
logs=${logs:-$work/logs}
Leave() {
  PackResults bench "$logs"
  rm -rf "$work"
}
trap Leave EXIT
mkdir -p "$logs" || exit 2
KeepOutput "$logs"
UnpackBundle "$work"
UseLibraries "$work" || exit 1
if ! nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.limit --format=csv,noheader; then
  echo "bench: no NVIDIA device here"
  exit 77
fi
date -u
cat "$here/VERSION"
failed=0
WriteCluster "$work"

# Report METRICS BY MODEL SHAPE
Report() {
  python3 "$here/torch_baseline.py" --report "$1" "$2" "$3" "$precision" "$4"
}

# Failed MODEL BY WHY
Failed() {
  printf '%-12s %-6s %-8s %s\n' "$1" "$precision" "$2" "FAILED: $3"
  failed=1
}

# PyTorch finds its libraries as it does without the bundle's before them.
Baseline() {
  local model=$1 shape=$2 log=$logs/$1-$precision-torch code type=$precision
  [[ $type == fp8 ]] && type=bf16
  LD_LIBRARY_PATH=$host_library_path timeout -k 5 300 \
    python3 "$here/torch_baseline.py" "$model" "$type" "$shape" 2>"$log"
  code=$?
  case $code in
    0) ;;
    3) failed=1 ;;  # its row says why
    124 | 137) Failed "$model" torch "not through after 300 s" ;;
    *) Failed "$model" torch "$(tail -1 "$log")" ;;
  esac
}

WriteTokens "$work"

# StepsOf FOLDER: how many are measured.
StepsOf() {
  cat "$1/run/metrics.jsonl" 2>/dev/null | grep -c '"step_s"'
}

# Train FOLDER: until the steps are measured. Then Ctrl-C, twice: the checkpoint of 12 bytes a
# parameter that one asks for is nothing that is measured here.
Train() {
  local folder=$1 run
  timeout -k 5 240 "$weft_bin/weft" run "$folder/job.yaml" >"$folder/out" 2>&1 &
  run=$!
  while kill -0 $run 2>/dev/null && (($(StepsOf "$folder") < steps)); do sleep 0.2; done
  kill -INT $run 2>/dev/null && sleep 0.2 && kill -INT $run 2>/dev/null
  wait $run 2>/dev/null
  sleep 1  # the driver takes back a worker's memory when that has ended
}

# Weft MODEL SHAPE GRAPHS: a row, and beneath it what the log says of attention and graphs.
Weft() {
  local model=$1 shape=$2 folder=$work/$1 by=weft log
  [[ $3 == 1 ]] && by=graphs
  # shellcheck disable=SC2086
  WriteJob "$work" "$folder" "$precision" 100000 $shape
  export WEFT_CUDA_GRAPHS=$3
  Train "$folder"
  log=$folder/run/logs/generation-1/rank-0.log
  if (($(StepsOf "$folder") >= steps)); then
    Report "$folder/run/metrics.jsonl" "$by" "$model" "$shape"
    sed -n 's/.*attention is computed by /  attention by /p' "$log" | tail -1
    sed -n 's/.*passes are replayed by /  replayed by /p' "$log" | tail -1
  else
    Failed "$model" "$by" "$(Cause "$folder/out")"
  fi
  cp "$folder/out" "$logs/$model-$precision-$by.out"
  cp "$log" "$logs/$model-$precision-$by.log" 2>/dev/null
  cp "$folder/run/metrics.jsonl" "$logs/$model-$precision-$by.jsonl" 2>/dev/null
  rm -rf "${folder:?}"
}

printf '%-12s %-6s %-8s %12s %8s %14s\n' model type by tokens/s MFU tokens/step
for model in "${models[@]}"; do
  Weft "$model" "${shapes[$model]}" 0
  [[ $with_graphs == *" $model "* ]] && Weft "$model" "${shapes[$model]}" 1
  Baseline "$model" "${shapes[$model]}"
done
exit $failed
