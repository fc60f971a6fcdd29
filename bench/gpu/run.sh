#!/usr/bin/env bash
# Trains GPT-2 and Llama shapes for some steps on one GPU and prints tokens/s and MFU, with PyTorch
# on the same model and batch in the same minutes where it can be imported; weft with CUDA graphs
# and without, whose worth shows in small steps (gpt2-124m-1k: 1,024 tokens). Runs from the folder
# that deploy/bundle.sh made (there: bench.sh).
#   bash bench.sh [PRECISION] [MODEL...]       default: fp32, all models; PRECISION: fp32, bf16
# WEFT_ATTENTION=own or cudnn in the environment: only weft's own attention kernels, or only cuDNN's;
# by default cuDNN where it serves. Beneath each row: by what it was computed.
# MFU: tokens/s x (6 N + 12 L q T) over the device's dense peak of that precision, where N counts
# matrix parameters with the head, L blocks, q = heads x head size, T the sequence. For bf16 the
# peak is 989.5 TFLOP/s, for fp32 67 TFLOP/s (H200 SXM). Tokens/s: median over steps 6 and later.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/host_libraries.sh"
precision=${1:-fp32}
(($# > 0)) && shift

# The vocabulary of GPT-2 is padded to a multiple of 64, as llm.c and nanoGPT have it: rows of 50,257
# elements are not aligned for tensor cores.
# name: family vocabulary width blocks heads kv_heads ffn T batch
declare -A shapes=(
  [gpt2-124m-1k]="gpt2 50304 768 12 12 12 3072 1024 1"
  [gpt2-124m]="gpt2 50304 768 12 12 12 3072 1024 32"
  [gpt2-350m]="gpt2 50304 1024 24 16 16 4096 1024 16"
  [gpt2-774m]="gpt2 50304 1280 36 20 20 5120 1024 8"
  [gpt2-1558m]="gpt2 50304 1600 48 25 25 6400 1024 8"
  [llama-1b]="llama 128256 2048 16 32 8 8192 4096 4"
  [llama-3b]="llama 128256 3072 28 24 8 8192 4096 2"
)
models=("$@")
((${#models[@]} > 0)) || models=(gpt2-124m-1k gpt2-124m gpt2-350m gpt2-774m gpt2-1558m llama-1b llama-3b)

work=$(mktemp -d "${TMPDIR:-/tmp}/weft-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
UnpackBundle "$work"
UseLibraries "$work" || exit 1
if ! nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.limit --format=csv,noheader; then
  echo "bench: no NVIDIA device here"
  exit 77
fi
date -u
cat "$here/VERSION"
steps=25

# The profile of an H200, with the memory of the device that is here.
memory_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
[[ $memory_mib =~ ^[0-9]+$ ]] || memory_mib=143771
sed "s/memory_bytes: .*/memory_bytes: $((memory_mib * 1048576))/" \
  "$work/weft/configs/clusters/h200.yaml" >"$work/cluster.yaml"

# PyTorch finds its libraries as it does without the bundle's before them.
Baseline() {
  # shellcheck disable=SC2154  # UseLibraries sets it
  LD_LIBRARY_PATH=$host_library_path timeout -k 5 240 python3 "$here/torch_baseline.py" "$@"
}

# Random bytes of 16-bit tokens below the vocabulary would not compress; a text would not fill it.
python3 - "$work/tokens.bin" <<'PY'
import random, struct, sys
random.seed(1)
tokens = [random.randrange(50257) for _ in range(4_000_000)]
open(sys.argv[1], "wb").write(struct.pack(f"<{len(tokens)}H", *tokens))
PY

WriteJob() {
  local folder=$1 family=$2 vocabulary=$3 width=$4 blocks=$5 heads=$6 kv=$7 ffn=$8 length=$9 batch=${10}
  mkdir -p "$folder"
  if [[ $family == gpt2 ]]; then
    echo "model: {model_type: gpt2, vocab_size: $vocabulary, n_positions: $length, n_embd: $width, n_layer: $blocks, n_head: $heads}"
  else
    echo "model: {model_type: llama, vocab_size: $vocabulary, max_position_embeddings: $length, hidden_size: $width, num_hidden_layers: $blocks, num_attention_heads: $heads, num_key_value_heads: $kv, intermediate_size: $ffn}"
  fi >"$folder/job.yaml"
  cat >>"$folder/job.yaml" <<YAML
job: {name: run, output_dir: $folder}
data: {format: nanogpt, train: [{path: $work/tokens.bin}]}
training: {seq_len: $length, global_batch_size: $batch, micro_batch_size: $batch, steps: $steps, seed: 1, mixed_precision: $precision}
optimizer: {name: adamw, lr: 1.0e-4}
metrics: {log_freq: 1}
cluster: {profile: $work/cluster.yaml}
YAML
}

# Weft MODEL SHAPE GRAPHS: a row, and beneath it what the log says of attention and graphs.
Weft() {
  local model=$1 shape=$2 folder=$work/$1 by=weft metrics log
  [[ $3 == 1 ]] && by=graphs
  # shellcheck disable=SC2086
  WriteJob "$folder" $shape
  # It ends with a checkpoint of 12 bytes a parameter, which may outlast the time or fill the disk:
  # what was measured before counts.
  WEFT_CUDA_GRAPHS=$3 timeout -k 5 240 "$weft_bin/weft" run "$folder/job.yaml" >"$folder/out" 2>&1
  metrics=$folder/run/metrics.jsonl
  log=$folder/run/logs/generation-1/rank-0.log
  if [[ -e $metrics ]] && (($(grep -c '"step_s"' "$metrics") >= steps)); then
    Baseline --report "$metrics" "$by" "$model" "$precision" "$shape"
    sed -n 's/.*attention is computed by /  attention by /p' "$log" | tail -1
    sed -n 's/.*passes are replayed by /  replayed by /p' "$log" | tail -1
  else
    printf '%-12s %-6s %-8s %s\n' "$model" "$precision" "$by" "FAILED: $(tail -1 "$folder/out")"
  fi
  rm -rf "${folder:?}"
}

printf '%-12s %-6s %-8s %12s %8s\n' model type by tokens/s MFU
for model in "${models[@]}"; do
  shape=${shapes[$model]:-}
  if [[ -z $shape ]]; then
    echo "bench: $model is unknown; use one of ${!shapes[*]}" >&2
    exit 2
  fi
  Weft "$model" "$shape" 0
  Weft "$model" "$shape" 1
  Baseline "$model" "$precision" "$shape"
done
