# shellcheck shell=bash
# Sourced by check.sh and bench.sh, which lie beside it: unpacks the bundle and finds the CUDA
# libraries of this host.

# UnpackBundle FOLDER: sets $weft_bin.
UnpackBundle() {
  tar -xzf "$(dirname "${BASH_SOURCE[0]}")/weft.tar.gz" -C "$1"
  weft_bin=$1/weft/bin
}

# Folders with CUDA libraries: the toolkit's and those of Python's nvidia packages.
CudaFolders() {
  local packages
  packages=$(python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null || true)
  {
    ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/*/lib 2>/dev/null
    if [[ -n $packages ]]; then
      while read -r package; do
        find "$package" -name '*.so.*' -printf '%h\n'
      done <<<"$packages"
    fi
  } | sort -u | paste -sd: || true
}

# UseLibraries FOLDER: sets LD_LIBRARY_PATH for the programs of the bundle, fails with what is
# missing.
UseLibraries() {
  local lacking
  export LD_LIBRARY_PATH="$1/weft/lib:$(CudaFolders):${LD_LIBRARY_PATH:-}"
  lacking=$(ldd "$weft_bin"/* | grep 'not found' | sort -u || true)
  if [[ -n $lacking ]]; then
    echo "weft: this host lacks libraries that the CUDA backend needs; install CUDA 13 or the nvidia Python packages of it:" >&2
    echo "$lacking" >&2
    return 1
  fi
}
