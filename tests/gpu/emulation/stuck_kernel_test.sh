#!/usr/bin/env bash
# A job of two workers over NCCL (the fake one), both of which have a transfer that never ends and
# does not leave the device when it is aborted either: who waits for that device waits for ever, and
# the run ends all the same, with the transfer's name. Both, because whichever says it first ends the
# other.
# Usage: stuck_kernel_test.sh BIN_FOLDER BACKEND
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/emulated_run.sh"
CopyPrograms stuck "$1" "$2"
WriteCluster 2 1000000000
cat >"$folder/job.yaml" <<YAML
job: {name: run, output_dir: $folder}
model: {model_type: gpt2, vocab_size: 256, n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}
data: {format: bytes, train: [{path: $folder/text.txt}]}
training: {seq_len: 16, global_batch_size: 4, micro_batch_size: 2, steps: 50}
optimizer: {name: adamw, lr: 1.0e-3}
parallelism: {dp: 2, tp: 1, pp: 1, zero_stage: 1}
fault_tolerance: {max_restarts: 0}
comm: {train_timeout_seconds: 3}
cluster: {profile: $folder/cluster.yaml}
YAML
export WEFT_EMULATED_DEVICES=own WEFT_FAKE_NCCL="-1 40 stuck"
code=0
timeout -k 5 90 "$folder/weft" run "$folder/job.yaml" >"$folder/out" 2>&1 || code=$?
if ((code == 0 || code >= 124)); then
  echo "stuck_kernel_test.sh: weft run ended with code $code"
  tail -20 "$folder/out"
  exit 1
fi
# Who says first that it waited in vain is not to blame for it.
if ! first=$(grep -m1 -o '^lost who is to blame is not known; reported by rank [01]' "$folder/out"); then
  echo "stuck_kernel_test.sh: weft run does not say who waited in vain:"
  cat "$folder/out"
  exit 1
fi
rank=${first##* }
log=$folder/run/logs/generation-1/rank-$rank.log
if ! grep -q "(call [0-9]* of rank $rank): not done after 3000 ms; it needs rank $((1 - rank))" "$log"; then
  echo "stuck_kernel_test.sh: rank $rank does not say what it waited for:"
  cat "$log"
  exit 1
fi
