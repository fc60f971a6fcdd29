#!/usr/bin/env bash
# What a script for a GPU host printed and logged is in $OUT's archive, whether it ends by itself or
# is told to; programs are not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-packed-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cat >"$folder/script.sh" <<SCRIPT
set -uo pipefail
. "$here/host_libraries.sh"
work=\$(mktemp -d "$folder/work-XXXXXX")
trap 'PackResults check "\$work"' EXIT
KeepOutput "\$work"
mkdir -p "\$work/weft/bin" "\$work/run/checkpoint"
echo log >"\$work/run/rank-0.log"
echo large >"\$work/run/checkpoint/shard"
echo large >"\$work/weft/bin/weft"
echo printed
[[ \$1 == told ]] && { echo >"$folder/waits"; sleep 10; }
exit 3
SCRIPT

# ExpectArchive WAY CODE EXPECTED
ExpectArchive() {
  local packed
  packed=$(tar -tzf "$folder/$1/check.tar.gz" | grep -v '/$' | sort | paste -sd' ')
  if [[ $2 != "$3" || $packed != "./output.txt ./run/rank-0.log" ]]; then
    echo "packed_results_test.sh: $1: code $2, archive: $packed"
    exit 1
  fi
  tar -xzOf "$folder/$1/check.tar.gz" ./output.txt | grep -qx printed
}

code=0
OUT=$folder/itself bash "$folder/script.sh" itself >"$folder/out" || code=$?
ExpectArchive itself $code 3
grep -qx printed "$folder/out"

code=0
OUT=$folder/told timeout -s TERM 30 bash "$folder/script.sh" told >/dev/null &
script=$!
for ((i = 0; i < 100; ++i)); do
  [[ -e $folder/waits ]] && break
  sleep 0.1
done
kill -TERM $script  # which passes it on to the script and what it waits for
wait $script || code=$?
ExpectArchive told $code 143
