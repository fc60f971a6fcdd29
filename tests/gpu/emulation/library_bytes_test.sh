#!/usr/bin/env bash
# A job of one worker on the emulated device, which is used beside the arena for more than the
# cluster's library_bytes, and for less: the worker's log warns of the one only. Both logs say once
# how fast products are, and checkpoints what the device has.
# Usage: library_bytes_test.sh BIN_FOLDER BACKEND
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/emulated_run.sh"
CopyPrograms library "$1" "$2"
for library_bytes in 1 1000000000; do
  WriteCluster 1 "$library_bytes"
  cat >"$folder/job.yaml" <<YAML
job: {name: run$library_bytes, output_dir: $folder}
model: {model_type: gpt2, vocab_size: 256, n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}
data: {format: bytes, train: [{path: $folder/text.txt}]}
training: {seq_len: 16, global_batch_size: 2, micro_batch_size: 2, steps: 2}
optimizer: {name: adamw, lr: 1.0e-3}
cluster: {profile: $folder/cluster.yaml}
YAML
  timeout -k 5 90 "$folder/weft" run "$folder/job.yaml"
  log=$folder/run$library_bytes/logs/generation-1/rank-0.log
  warnings=$(grep -c "cluster.device.library_bytes: $library_bytes are planned, but [0-9]* of the" "$log" || true)
  if ((warnings != (library_bytes == 1))); then
    echo "library_bytes_test.sh: with $library_bytes bytes the log has $warnings warnings:"
    cat "$log"
    exit 1
  fi
  timed=$(grep -c "INFO.*products timed, in 10^12 operations a second: [0-9]*x" "$log" || true)
  if ((timed != 1)); then
    echo "library_bytes_test.sh: the log tells $timed times how fast products are:"
    cat "$log"
    exit 1
  fi
  grep -q '"computed_by.compute_units": *"[1-9]' "$folder/run$library_bytes"/checkpoint/*/manifest.json || {
    echo "library_bytes_test.sh: the checkpoint does not name the device's compute units:"
    cat "$folder/run$library_bytes"/checkpoint/*/manifest.json
    exit 1
  }
done
