#!/usr/bin/env bash
# From a fresh clone on a bare Debian 12 machine to a trained model: installs packages, builds,
# prepares a text, trains a byte-level GPT on 4 worker processes. Run it again and it goes on where
# it was, or says that it is done. Options are handed to `weft run` (--fresh starts anew).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== 1/4 packages"
bash deploy/install_packages.sh run
echo "== 2/4 build (Release, into build/release; a first build takes a few minutes)"
. deploy/build.sh
Build release weft weftd weft-worker weft-shim weft_cpu
echo "== 3/4 corpus"
bash deploy/prepare_corpus.sh build/corpus/kjv.txt
echo "== 4/4 training: build/release/bin/weft run configs/jobs/quickstart.yaml $*"
exec build/release/bin/weft run configs/jobs/quickstart.yaml "$@"
