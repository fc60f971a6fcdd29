#!/usr/bin/env bash
# Does the steps of deploy/Dockerfile without Docker, in a Debian 12 of its own (debootstrap, which
# takes minutes and the network), and trains there as the image's user.
#   bash deploy/tarball.sh build/release build/image
#   bash deploy/try_dockerfile.sh [FOLDER_OF_THE_ARCHIVE]     as root; default: build/image
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

context=$(realpath "${1:-build/image}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
debootstrap --variant=minbase bookworm "$root" >"$work/debootstrap.log" 2>&1 ||
  { tail -5 "$work/debootstrap.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/resolv.conf"

# In: runs one command there as the user, in the folder and with the PATH of the steps so far.
user=root folder=/ path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
In() {
  unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" &&
    exec env -i PATH="$2" HOME="$4" /usr/sbin/chroot --userspec="$3" "$1" /bin/sh -c "cd $4 && $5"' \
    - "$root" "$path" "$user" "$folder" "$1"
}

while read -r step rest; do
  rest=${rest//\$\{KIND\}/}
  case $step in
    '' | '#'* | ARG | FROM) continue ;;
    RUN) In "$rest" ;;
    ADD)
      read -r archive there <<<"$rest"
      tar -xzf "$context"/$archive -C "$root$there" # a pattern
      ;;
    ENV) path=${rest#PATH=} ;;
    USER) user=$rest ;;
    WORKDIR) folder=$rest ;;
    ENTRYPOINT) [[ $rest == '["weft"]' ]] ;;
    *) echo "weft: try_dockerfile.sh: deploy/Dockerfile: $step is no step that is known here" >&2; exit 2 ;;
  esac
  echo "done: $step $rest"
done <deploy/Dockerfile

cat >"$root/home/weft/job.yaml" <<'YAML'
job: {name: tiny}
model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, n_head: 4}
data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}
training: {seq_len: 64, global_batch_size: 8, steps: 20, seed: 42}
optimizer: {name: adamw, lr: 1.0e-3}
parallelism: {dp: 2, pp: 2, tp: 1}
cluster: {profile: cpu, slots: 4}
YAML
In 'weft run job.yaml'
