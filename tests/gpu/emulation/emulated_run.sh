# shellcheck shell=bash
# Sourced by tests of whole runs on the emulated device.

# CopyPrograms NAME BIN_FOLDER BACKEND: sets $folder, a new one that goes when the test ends, with
# the programs and a text. Copies: programs look for a backend beside the file that they really are.
CopyPrograms() {
  folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-$1-XXXXXX")
  trap 'rm -rf "$folder"' EXIT
  cp "$2"/weft "$2"/weftd "$2"/weft-worker "$2"/weft-shim "$3" "$folder/"
  seq 1 2000 >"$folder/text.txt"
}

# WriteCluster SLOTS LIBRARY_BYTES: $folder/cluster.yaml.
WriteCluster() {
  cat >"$folder/cluster.yaml" <<YAML
name: emulated
slots_per_node: $1
device:
  name: gpu
  backend: cuda
  memory_bytes: 4000000000
  library_bytes: $2
  peak_flops_per_s: {fp32: 60e12}
  peak_memory_bytes_per_s: 4e12
  efficiency: {matmul_fp32: 0.7, attention: 0.5, streaming: 0.9}
  op_overhead_s: 4e-6
intra_node: {latency_s: 1e-5, bytes_per_s: 20e9}
inter_node: {latency_s: 1e-5, bytes_per_s: 20e9}
YAML
}
