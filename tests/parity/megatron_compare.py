"""Compares the .bin and .idx of `weft data prepare` with megatron-core's IndexedDataset: it reads ours, document by
document, and its own builder writes the same bytes of the same ids. Texts are man pages of this Debian; ids those of
Hugging Face's tokenizers, with a vocabulary of 16 and one of 32 bits. No part of CI. Needs
  pip install megatron-core torch tokenizers numpy    (0.16.1, 2.x, 0.23.3)
Usage: megatron_compare.py WEFT [MEGABYTES]; WEFT is the built command. Exit code 1: something differs.
"""
import filecmp
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers

END = "<|endoftext|>"


def man_pages(most_bytes):
    texts, size = [], 0
    for path in sorted(glob.glob("/usr/share/man/man*/*.gz")):
        text = gzip.open(path).read().decode("utf-8", "replace")
        texts.append(text)
        size += len(text)
        if size > most_bytes:
            break
    return texts


def trained(texts, folder, filler):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts[:50], trainers.BpeTrainer(
        vocab_size=2000, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([f"<filler {i}>" for i in range(filler)])
    os.makedirs(folder)
    tokenizer.save(folder + "/tokenizer.json")
    return tokenizer


def differences(weft, texts, folder, filler):
    tokenizer = trained(texts, folder + "/tokenizer", filler)
    end = tokenizer.token_to_id(END)
    dtype = numpy.uint16 if tokenizer.get_vocab_size() < 65500 else numpy.int32
    with open(folder + "/rows.jsonl", "w", encoding="utf-8") as rows:
        for i, text in enumerate(texts):
            rows.write(json.dumps({"id": i, "text": text}, ensure_ascii=i % 2 == 0) + "\n")
    subprocess.run([weft, "data", "prepare", folder + "/rows.jsonl", "--tokenizer", folder + "/tokenizer", "--output",
                    folder + "/ours"], check=True, stdout=subprocess.DEVNULL)
    ids = [tokenizer.encode(text).ids + [end] for text in texts]
    ours = IndexedDataset(folder + "/ours")
    found = 0
    if len(ours) != len(ids) or ours.index.dtype is not dtype or len(ours.document_indices) != len(ids) + 1:
        print(f"found {len(ours)} documents of {ours.index.dtype}, expected {len(ids)} of {dtype}")
        found += 1
    for i, expected in enumerate(ids[:len(ours)]):
        if ours[i].tolist() != expected:
            print(f"document {i} differs")
            found += 1
    builder = IndexedDatasetBuilder(folder + "/theirs.bin", dtype=dtype)
    for expected in ids:
        builder.add_item(torch.tensor(expected, dtype=torch.int64))
        builder.end_document()
    builder.finalize(folder + "/theirs.idx")
    for ending in (".bin", ".idx"):
        if not filecmp.cmp(folder + "/ours" + ending, folder + "/theirs" + ending, shallow=False):
            print(f"ours{ending} is not what megatron-core writes")
            found += 1
    print(f"{len(ids)} documents, {sum(map(len, ids))} tokens of {numpy.dtype(dtype).name}: {found} differences")
    return found


def main():
    texts = man_pages(int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 4_000_000)
    found = 0
    for filler in (0, 64000):
        with tempfile.TemporaryDirectory() as folder:
            found += differences(sys.argv[1], texts, folder, filler)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
