# shellcheck shell=bash
# Sourced by bench.sh and kernels.sh, which lie beside it: the models and the jobs that train them.

# The vocabulary of GPT-2 is padded to a multiple of 64, as llm.c and nanoGPT have it: rows of 50,257
# elements are not aligned for tensor cores. Llama's tables are tied, as those of Llama 3.2.
# llama-8b-width has the layers of Llama 3.1 8B, but 20 of 32: with 16 bytes of states a parameter
# one H200 holds those.
# name: family vocabulary width blocks heads kv_heads ffn T micro-batch microbatches
declare -A shapes=(
  [gpt2-124m-1k]="gpt2 50304 768 12 12 12 3072 1024 1 1"
  [gpt2-124m]="gpt2 50304 768 12 12 12 3072 1024 64 1"
  [gpt2-350m]="gpt2 50304 1024 24 16 16 4096 1024 16 4"
  [gpt2-774m]="gpt2 50304 1280 36 20 20 5120 1024 8 8"
  [gpt2-1558m]="gpt2 50304 1600 48 25 25 6400 1024 8 8"
  [llama-1b]="llama 128256 2048 16 32 8 8192 4096 4 4"
  [llama-3b]="llama 128256 3072 28 24 8 8192 4096 2 8"
  [llama-8b-width]="llama 128256 4096 20 32 8 14336 4096 1 8"
)
models=(gpt2-124m-1k gpt2-124m gpt2-350m gpt2-774m gpt2-1558m llama-1b llama-3b llama-8b-width)

# WriteCluster FOLDER: cluster.yaml, the profile of an H200 with the memory of the device that is
# here. The bundle is unpacked there.
WriteCluster() {
  local memory_mib
  memory_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
  [[ $memory_mib =~ ^[0-9]+$ ]] || memory_mib=143771
  sed "s/memory_bytes: .*/memory_bytes: $((memory_mib * 1048576))/" \
    "$1/weft/configs/clusters/h200.yaml" >"$1/cluster.yaml"
}

# WriteTokens FOLDER: tokens.bin. Random bytes of 16-bit tokens below the vocabulary would not
# compress; a text would not fill it.
WriteTokens() {
  python3 - "$1/tokens.bin" <<'PY'
import random, struct, sys
random.seed(1)
tokens = [random.randrange(50257) for _ in range(4_000_000)]
open(sys.argv[1], "wb").write(struct.pack(f"<{len(tokens)}H", *tokens))
PY
}

# WriteJob WORK FOLDER PRECISION STEPS SHAPE...: FOLDER/job.yaml, with what is in WORK.
WriteJob() {
  local work=$1 folder=$2 precision=$3 steps=$4
  shift 4
  local family=$1 vocabulary=$2 width=$3 blocks=$4 heads=$5 kv=$6 ffn=$7 length=$8 micro=$9
  local microbatches=${10}
  mkdir -p "$folder"
  if [[ $family == gpt2 ]]; then
    echo "model: {model_type: gpt2, vocab_size: $vocabulary, n_positions: $length, n_embd: $width, n_layer: $blocks, n_head: $heads}"
  else
    echo "model: {model_type: llama, vocab_size: $vocabulary, max_position_embeddings: $length, hidden_size: $width, num_hidden_layers: $blocks, num_attention_heads: $heads, num_key_value_heads: $kv, intermediate_size: $ffn, rope_theta: 500000, tie_word_embeddings: true}"
  fi >"$folder/job.yaml"
  cat >>"$folder/job.yaml" <<YAML
job: {name: run, output_dir: $folder}
data: {format: nanogpt, train: [{path: $work/tokens.bin}]}
training: {seq_len: $length, global_batch_size: $((micro * microbatches)), micro_batch_size: $micro, steps: $steps, seed: 1, mixed_precision: $precision}
optimizer: {name: adamw, lr: 1.0e-4}
metrics: {log_freq: 1}
cluster: {profile: $work/cluster.yaml}
YAML
}
