#!/usr/bin/env bash
# Puts CUDA's disassembler into build/cuda_tools, for machine_code_test; from PyPI, as toolkits of
# distributions may lack it. Where there is no pip or no network it says so, and the test is skipped.
#   bash deploy/cuda_tools.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=build/cuda_tools
if [[ -x $tools/nvidia/cu13/bin/cuobjdump && -x $tools/nvidia/cu13/bin/nvdisasm ]]; then
  echo "cuda tools: there"
  exit 0
fi
mkdir -p build
if ! timeout 120 python3 -m pip install --quiet --no-deps --target "$tools" --upgrade \
  'nvidia-cuda-cuobjdump==13.*' 'nvidia-cuda-nvdisasm==13.*' >build/cuda_tools.log 2>&1; then
  echo "cuda tools: not installed (build/cuda_tools.log); machine_code_test is skipped"
  exit 0
fi
chmod +x "$tools"/nvidia/cu13/bin/{cuobjdump,nvdisasm}
echo "cuda tools: installed"
