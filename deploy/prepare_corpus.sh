#!/usr/bin/env bash
# Writes the quickstart's corpus, one verse per line without its number, to the path given:
#   bash deploy/prepare_corpus.sh build/corpus/kjv.txt
# The text is the King James Bible of Debian's bible-kjv-text: 4.1 MB of plain ASCII prose of one
# hand, in main, the same bytes on every Debian 12, and not under /usr/share/doc, which slim images
# leave out. The copyright of the text has expired (the Crown's letters patent hold in the UK).
set -euo pipefail
out=${1:?usage: prepare_corpus.sh <file to write>}

if [[ -s $out ]]; then
  echo "corpus: $out is there ($(stat -c %s "$out") bytes)"
  exit 0
fi
command -v bible >/dev/null || {
  echo "weft: the corpus needs the package bible-kjv; run bash deploy/install_packages.sh" >&2
  exit 1
}
mkdir -p "$(dirname "$out")"
bible -f 'gen1:1-rev22:21' </dev/null | sed -E 's/^[^ ]+:[0-9]+ +//' >"$out.part"
bytes=$(stat -c %s "$out.part")
if ((bytes < 4000000)); then
  rm -f "$out.part"
  echo "weft: bible printed $bytes bytes where about 4.1 million were expected; reinstall bible-kjv-text" >&2
  exit 1
fi
mv "$out.part" "$out"
echo "corpus: wrote $out ($bytes bytes of English)"
