#!/usr/bin/env bash
# Two worker processes of a real `weft run`, with mapped memory between them, on the emulated
# device: left alone, and with one killed. Usage: run_test.sh BIN_FOLDER BACKEND
set -euo pipefail
# Copies: programs look for a backend beside the file that they really are.
folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-emulated-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cp "$1"/weft "$1"/weftd "$1"/weft-worker "$1"/weft-ranks "$2" "$folder/"
bash "$(dirname "${BASH_SOURCE[0]}")/../check.sh" --processes "$folder"
