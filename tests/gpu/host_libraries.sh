# shellcheck shell=bash
# Sourced by check.sh, bench.sh and kernels.sh, which lie beside it: unpacks the bundle, finds the
# CUDA libraries of this host, says why a run has failed, and packs what a script leaves.

# KeepOutput FOLDER: where $OUT names a folder, what is printed from now on goes to FOLDER/output.txt
# too. A script that is told to end does so by its EXIT trap.
KeepOutput() {
  trap 'exit 143' TERM INT HUP
  [[ -n ${OUT:-} ]] || return 0
  exec {printed}>&1
  exec > >(trap '' TERM INT HUP; exec tee "$1/output.txt") 2>&1  # it ends last
  tee_process=$!
}

# PackResults NAME FOLDER: what FOLDER holds, but programs and what can be made again, becomes
# $OUT/NAME.tar.gz; for EXIT traps, so that it is there however the script ends.
PackResults() {
  [[ -n ${OUT:-} ]] || return 0
  exec 1>&"$printed" 2>&"$printed"
  wait "$tee_process" 2>/dev/null
  mkdir -p "$OUT" && tar -C "$2" --exclude=./weft --exclude=./bin --exclude='*/checkpoint' \
    --exclude='*.safetensors' --exclude=./tokens.bin -czf "$OUT/$1.tar.gz" . &&
    echo "logs and results are in $OUT/$1.tar.gz"
}

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

# UseOwnRuntime FOLDER: drops the bundle's libstdc++ where the host's is as new. The bundle's needs
# Debian 12's glibc, which Ubuntu 22.04 does not have, and would shadow a newer one for what the
# host's own libraries load.
UseOwnRuntime() {
  local carried="$1/weft/lib/libstdc++.so.6" newest own
  newest=$(grep -ao 'GLIBCXX_3\.4\.[0-9]*' "$carried" | sort -Vu | tail -1)
  own=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
    awk '$1 == "libstdc++.so.6" && /x86-64/ && !path {path = $NF} END {print path}')
  if [[ -n $newest && -n $own ]] && grep -qaF "$newest" "$own"; then
    rm -f "$carried" "$1/weft/lib/libgcc_s.so.1"
  fi
}

# UseLibraries FOLDER: sets LD_LIBRARY_PATH for the programs of the bundle, and $host_library_path
# to what it was, for those of the host; fails with what is missing.
UseLibraries() {
  local lacking
  # shellcheck disable=SC2034  # bench.sh reads it
  host_library_path=${LD_LIBRARY_PATH:-}
  UseOwnRuntime "$1"
  export LD_LIBRARY_PATH="$1/weft/lib:$(CudaFolders):${LD_LIBRARY_PATH:-}"
  lacking=$(ldd "$weft_bin"/* 2>&1 | grep 'not found' | sort -u || true)
  if [[ -n $lacking ]]; then
    echo "weft: this host lacks libraries that the CUDA backend needs; install CUDA 13 or the nvidia Python packages of it (GLIBC: this host is older than Ubuntu 22.04):" >&2
    echo "$lacking" >&2
    return 1
  fi
}

# Cause FILE: of what `weft run` printed the line that says why it failed.
Cause() {
  grep -a '^weft: the job failed' "$1" | tail -1 | grep . ||
    grep -av '^logs are in\|nothing was started$' "$1" | tail -1 | grep . ||
    echo "it printed nothing"
}
