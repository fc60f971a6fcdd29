#!/usr/bin/env bash
# The links of two emulated devices, as weft calibrate asks for them: ranks that no coordinator
# joins find each other through a folder, by mapped memory or by the fake NCCL.
# Usage: probe_test.sh BIN_FOLDER BACKEND own|shared
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/emulated_run.sh"
CopyPrograms probe "$1" "$2"
mkdir "$folder/relay"
if [[ $3 == own ]]; then export WEFT_EMULATED_DEVICES=own; fi
ranks=()
for rank in 0 1; do
  WEFT_RANK=$rank WEFT_LOCAL_RANK=$rank WEFT_WORLD_SIZE=2 "$folder/weft-worker" --probe=links \
    --backend=cuda --seconds=1 --relay-folder="$folder/relay" >>"$folder/links.json" &
  ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank"; done
cat "$folder/links.json"
for collective in send_receive all_reduce reduce_scatter all_gather; do
  # At least of 4 bytes, 4 KiB, 64 KiB and 1 MiB, each with a time.
  count=$(grep -o "{\"collective\": \"$collective\", \"ranks\": 2, \"nodes\": 1, \"bytes\": [0-9]*, \"seconds\": [0-9.e-]*[1-9]" \
    "$folder/links.json" | wc -l)
  ((count >= 4)) || { echo "probe_test.sh: $count sizes of $collective"; exit 1; }
done
[[ -s $folder/relay/cuda.device.1 && -s $folder/relay/cuda.transport.0 ]] || {
  echo "probe_test.sh: the ranks did not agree through the folder"
  exit 1
}
