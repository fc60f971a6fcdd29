#!/usr/bin/env bash
# Makes the folder that is carried to a GPU host which has no package registry: programs, the CUDA
# backend, the GPU tests, and every shared library that they need but glibc, the NVIDIA driver and
# the CUDA libraries, packed into one archive of at most 60 MB beside the scripts that use it.
#   bash deploy/bundle.sh [BUILD_FOLDER] [BUNDLE_FOLDER]     default: build/release build/bundle
# On the other host: bash BUNDLE_FOLDER/check.sh (or bench.sh, kernels.sh). It needs CUDA 13's libcublasLt and
# NCCL, from a toolkit or from Python's nvidia packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/carry.sh

build=${1:-build/release}
bundle=${2:-build/bundle}
programs=(weft weftd weft-worker weft-shim gpu_test gpu_layouts_test)
most_mb=60

missing=()
for program in "${programs[@]}" libweft_cuda.so; do
  [[ -e $build/bin/$program ]] || missing+=("$program")
done
if ((${#missing[@]} > 0)); then
  echo "weft: bundle.sh: $build/bin lacks ${missing[*]}; configure with WEFT_CUDA=ON and build them" >&2
  exit 2
fi

rm -rf "$bundle"
mkdir -p "$bundle/weft/bin" "$bundle/weft/lib"
for program in "${programs[@]}" libweft_cuda.so; do
  strip -o "$bundle/weft/bin/$program" "$build/bin/$program"
done

carried=("${programs[@]}" libweft_cuda.so)
CarryLibraries "$bundle/weft/lib" "${carried[@]/#/$build/bin/}"

cp -r configs "$bundle/weft/configs"
cp tests/gpu/check.sh tests/gpu/host_libraries.sh bench/gpu/{run,models,kernels}.sh \
  bench/gpu/torch_baseline.py "$bundle/"
mv "$bundle/run.sh" "$bundle/bench.sh"
"$build/bin/weft" --version >"$bundle/VERSION"

unpacked_mb=$(du -sm "$bundle/weft" | cut -f1)
tar -C "$bundle" -czf "$bundle/weft.tar.gz" weft
rm -rf "$bundle/weft"
packed_mb=$(du -sm "$bundle" | cut -f1)
echo "bundle: $bundle, $packed_mb MB ($unpacked_mb MB unpacked)"
if ((packed_mb > most_mb)); then
  echo "weft: bundle.sh: $packed_mb MB are more than the $most_mb that can be carried" >&2
  exit 1
fi
