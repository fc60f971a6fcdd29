#!/usr/bin/env bash
# Under a driver that is too old, what needs a device fails by that cause, with the version that is
# there and the one that is needed; it is not skipped as if there were no device.
#   old_driver_test.sh PROGRAMS STUB_DRIVER_FOLDER
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$2:${LD_LIBRARY_PATH:-} WEFT_STUB_DRIVER_SERVES=12040
cause='serves CUDA up to 12\.4, this build needs 13\.[0-9]; install driver 580 or newer'

# Fails PROGRAM FILTER
Fails() {
  if "$bin/$1" --gtest_filter="$2" >"$work/log" 2>&1 || ! grep -q "$cause" "$work/log"; then
    cat "$work/log"
    echo "$1 $2 does not fail by its cause"
    exit 1
  fi
}
Fails gpu_test 'CudaBackend.DescribesEveryDevice'
Fails gpu_test '*DeviceOps.Elementwise*'
Fails gpu_layouts_test '*CudaLayouts*Gpt2Dp2'

printf '#!/bin/sh\necho "NVIDIA H200, 550.54.15, 140000 MiB"\n' >"$work/nvidia-smi"
chmod +x "$work/nvidia-smi"
PATH=$work:$PATH bash "$here/check.sh" --device "$bin" >"$work/log" 2>&1
code=$?
if ((code != 1)) || ! grep -q "^check: device .*FAILED .*$cause" "$work/log"; then
  cat "$work/log"
  echo "check.sh ends with code $code and does not name the cause"
  exit 1
fi
