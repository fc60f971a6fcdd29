#!/usr/bin/env bash
# Packs weft for hosts on which nobody may install anything: programs, the CPU backend, Open MPI and
# every shared library that they need but glibc (2.36 or newer is the host's), in one archive that
# runs wherever it is unpacked.
#   bash deploy/tarball.sh [--cuda] [BUILD_FOLDER] [OUTPUT_FOLDER]     default: build/release build
# With --cuda the CUDA backend is in it; CUDA 13's libraries, NCCL and the driver are the host's.
# On the other host: tar xzf weft-*.tar.gz; weft-*/bin/weft doctor. It needs no root and no package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/carry.sh

cuda=
if [[ ${1:-} == --cuda ]]; then
  cuda=-cuda
  shift
fi
build=${1:-build/release}
output=${2:-build}
programs=(weft weftd weft-worker weft-shim)
backends=(libweft_cpu.so libweft_bind.so ${cuda:+libweft_cuda.so})
# Where Debian's Open MPI has its plugins, below its prefix.
mpi=lib/x86_64-linux-gnu/openmpi/lib/openmpi3

missing=()
for file in "${programs[@]}" "${backends[@]}"; do
  [[ -e $build/bin/$file ]] || missing+=("$build/bin/$file")
done
for file in "/usr/$mpi" /usr/bin/orterun /usr/bin/orted; do
  [[ -e $file ]] || missing+=("$file (Debian's openmpi-bin)")
done
command -v patchelf >/dev/null || missing+=("patchelf (Debian's patchelf)")
if ((${#missing[@]} > 0)); then
  echo "weft: tarball.sh: not there: ${missing[*]}; run bash deploy/build.sh, or install it" >&2
  exit 2
fi

version=$("$build/bin/weft" --version | awk '{print $2; exit}')
name=weft-$version-linux-x86_64$cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name
mkdir -p "$root"/{bin,lib,share/weft,"$mpi"}

for file in "${programs[@]}" "${backends[@]}"; do
  strip -o "$root/bin/$file" "$build/bin/$file"
done
cp /usr/bin/orterun "$root/bin/orterun"
cp /usr/bin/orted "$root/bin/orted"
ln -s orterun "$root/bin/mpirun"
cp "/usr/$mpi"/*.so "$root/$mpi/"
cp -r /usr/share/openmpi "$root/share/openmpi"
cp -r configs/clusters configs/jobs deploy/systemd "$root/share/weft/"
touch "$root/share/weft/carried_mpi"

CarryLibraries "$root/lib" "${programs[@]/#/$build/bin/}" "${backends[@]/#/$build/bin/}" \
  "$root/bin/orterun" "$root/bin/orted" "$root/$mpi"/*.so

# DT_RPATH, not DT_RUNPATH: the libraries of libraries are looked for there, too, and before
# LD_LIBRARY_PATH, which modules of a cluster set.
find "$root/bin" "$root/lib" -type f | while read -r file; do
  [[ $(head -c 4 "$file" | tr -d '\0') == $'\177ELF' ]] || continue
  up=$(realpath --relative-to="$(dirname "$file")" "$root/lib")
  cuda_at=
  [[ $file != */libweft_cuda.so ]] || cuda_at=:/usr/local/cuda/lib64
  patchelf --force-rpath --set-rpath "\$ORIGIN/$up$cuda_at" "$file"
done

mkdir -p "$output"
tar -C "$work" -czf "$output/$name.tar.gz" "$name"
echo "tarball: $output/$name.tar.gz, $(du -m "$output/$name.tar.gz" | cut -f1) MB" \
  "($(du -sm "$root" | cut -f1) MB unpacked)"
