#!/usr/bin/env bash
# Installs what weft needs from Debian 12's own archive; does nothing when all of it is there.
#   bash deploy/install_packages.sh run    to build and run weft
#   bash deploy/install_packages.sh test   the same and what the tests need
# Non-interactive, as root or with sudo. Fails with one sentence on stderr and exit code 1.
set -euo pipefail

# In MiB, measured with room to spare: packages and what they pull in take 1200, a build 80.
readonly packages_mib=1500
readonly build_mib=500

fail() {
  echo "weft: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
purpose=${1:-run}
[[ $purpose == run || $purpose == test ]] ||
  fail "install_packages.sh: '$purpose' is not a purpose; use run or test"

# shellcheck disable=SC1090
distribution=$(. "${WEFT_OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") ||
  distribution="unknown"
[[ $distribution == "debian 12" ]] ||
  fail "this system is '${distribution}', and weft is built from the packages of 'debian 12';" \
    "use a Debian 12 machine or container"

# need_space <folder> <MiB> <for what>
need_space() {
  local free
  free=$(df --output=avail --block-size=1M "$1" 2>/dev/null | tail -n 1 | tr -d ' ')
  ((free >= $2)) || fail "no space: $1 has ${free} MiB free and $3 needs $2; make room or clone elsewhere"
}
need_space "$root" "$build_mib" "the build"

missing=()
while read -r package for_whom; do
  [[ -z $package || $package == \#* ]] && continue
  [[ $for_whom == run || $purpose == test ]] || continue
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=absent
  [[ $status == installed ]] || missing+=("$package")
done <"$root/deploy/packages.txt"

if ((${#missing[@]} == 0)); then
  echo "packages: all installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "${#missing[@]} packages are missing, and this is neither root nor is there sudo; run as root: apt-get install ${missing[*]}"
  sudo -n true 2>/dev/null || fail "${#missing[@]} packages are missing and sudo wants a password; run \`sudo bash deploy/install_packages.sh ${purpose}\` first"
  as_root=(sudo)
fi
need_space /var "$packages_mib" "the installation of packages"

mkdir -p "$root/build"
log="$root/build/apt.log"
echo "packages: installing ${#missing[@]} from Debian 12 (${missing[*]}); log: build/apt.log"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@" >>"$log" 2>&1 </dev/null
}
: >"$log"
# A failed update alone is no reason to stop: another repository of this machine may be down.
apt update || true
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
  reason=$(grep -E '^E: ' "$log" | head -n 1) || reason="no error was printed"
  if grep -qE 'Could not resolve|Could not connect|Failed to fetch|Network is unreachable|Temporary failure' "$log"; then
    fail "no network: the Debian archive cannot be reached (${reason}); check the connection or the mirror in /etc/apt and run this again"
  elif grep -qE 'No space left|enough free space' "$log"; then
    fail "no space: apt could not unpack the packages (${reason}); make room and run this again"
  fi
  fail "apt-get could not install the packages (${reason}); the whole log is in build/apt.log"
fi
echo "packages: done"
