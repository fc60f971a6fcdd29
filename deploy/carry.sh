# shellcheck shell=bash
# Sourced by bundle.sh and tarball.sh: what of the shared libraries travels with weft.

# Not glibc: the host's must match its kernel and loader. Not the driver, not CUDA: they are the
# host's, and too large to carry.
not_carried='^(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util)\.so.*|libcuda\.so.*|lib(cublas|cublasLt|cudart|cudnn|nccl|nvrtc|nvJitLink).*)$'

# CarryLibraries FOLDER FILE...: copies into FOLDER each library that the files need; fails where one
# that has to travel is not here.
CarryLibraries() {
  local folder=$1 file name path
  shift
  for file in "$@"; do
    while read -r name; do
      [[ $name =~ $not_carried ]] && continue
      echo "weft: $file needs $name, which is not here; install it, or leave the file out" >&2
      return 1
    done < <(ldd "$file" | awk '/=> not found/ {print $1}')
  done
  # "libfoo.so.1 => /path/libfoo.so.1 (0x...)"
  for file in "$@"; do
    ldd "$file"
  done | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    while read -r name path; do
      [[ $name =~ $not_carried ]] && continue
      strip -o "$folder/$name" "$(readlink -f "$path")" 2>/dev/null || cp -L "$path" "$folder/$name"
      chmod u+w "$folder/$name"
    done
}
