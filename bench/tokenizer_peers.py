"""Makes tokenizers of one vocabulary (the 130,072 tokens of Mistral's tekken) under the split patterns that people
use, for tokenizer_bench; and times tokenizers and tiktoken on the same file, by processor time.
Needs `pip install tokenizers tiktoken mistral-common`. Usage: tokenizer_peers.py FOLDER [FILE]; without FILE it only
writes to FOLDER: gpt2, llama3, qwen2, large (tokenizer.json each), {cl100k,o200k,r50k}_base.tiktoken.
"""
import base64
import glob
import json
import os
import sys
import time

import mistral_common
import tiktoken
from tokenizers import Tokenizer

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")


def byte_characters():
    table, more = {}, 256
    for byte in range(256):
        itself = 33 <= byte <= 126 or (byte >= 161 and byte != 173)
        table[byte] = chr(byte if itself else more)
        more += 0 if itself else 1
    return table


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def write(folder):
    os.makedirs(folder, exist_ok=True)
    path = sorted(glob.glob(os.path.dirname(mistral_common.__file__) + "/data/tekken*.json"))[0]
    vocab = json.load(open(path))["vocab"][:130072]
    ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in vocab}
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    for name, first_special in (("cl100k_base", 100257), ("o200k_base", 199999), ("r50k_base", 50256)):
        with open(f"{folder}/{name}.tiktoken", "w") as file:
            file.write("".join(lines[:first_special]))
    characters = byte_characters()

    def written(token):
        return "".join(characters[byte] for byte in token)

    merges = []
    for token in ranks:
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [cut for cut in cuts if cut[0] in ranks and cut[1] in ranks]
        merges += [[written(a), written(b)] for a, b in sorted(known, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))]
    patterns = {"gpt2": [level(True)], "llama3": [split(LLAMA3), level(False)],
                "qwen2": [split(LLAMA3.replace("{1,3}", "")), level(False)]}
    for name, steps in patterns.items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                 "normalizer": {"type": "NFC"} if name == "qwen2" else None,
                 "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": None,
                 "decoder": level(True), "model": {
                     "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                     "ignore_merges": name == "llama3",
                     "vocab": {written(token): rank for token, rank in ranks.items()},
                     "merges": merges}}
        with open(f"{folder}/{name}/tokenizer.json", "w") as file:
            json.dump(whole, file, ensure_ascii=False)
    # 200,000 tokens to open: all that tekken lists, and pairs of them.
    every = {base64.b64decode(each["token_bytes"]) for each in json.load(open(path))["vocab"]}
    common = list(ranks)[256:2000]
    for left in common:
        for right in common[::7]:
            if len(every) < 200_000 and left + right not in every:
                every.add(left + right)
                merges.append([written(left), written(right)])
    whole["model"] |= {"vocab": {written(token): rank for rank, token in enumerate(sorted(every))}, "merges": merges}
    os.makedirs(f"{folder}/large", exist_ok=True)
    with open(f"{folder}/large/tokenizer.json", "w") as file:
        json.dump(whole, file, ensure_ascii=False)
    return ranks


def main():
    ranks = write(sys.argv[1])
    if len(sys.argv) < 3:
        return
    text = open(sys.argv[2], "rb").read(8_000_000).decode("utf-8", "replace")
    documents = [text[begin:begin + 4096] for begin in range(0, len(text), 4096)]
    peers = {f"tokenizers {name}": Tokenizer.from_file(f"{sys.argv[1]}/{name}/tokenizer.json").encode
             for name in ("gpt2", "llama3", "qwen2")}
    peers["tiktoken cl100k"] = tiktoken.Encoding("cl100k", pat_str=CL100K, mergeable_ranks=ranks,
                                                 special_tokens={}).encode_ordinary
    for name, encode in peers.items():
        begin = time.process_time()
        for document in documents:
            encode(document)
        print(f"{name}: {len(text.encode()) / (time.process_time() - begin) / 1e6:.1f} MB/s")


main()
