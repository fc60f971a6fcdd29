"""Makes golden.jsonl: small tokenizers of every kind, and what Hugging Face's tokenizers, tiktoken and sentencepiece
make of some texts with them. A line: {"name", "file", "content" (base64), "cases": [[text, ids, decoded]]}.
Needs `pip install tokenizers tiktoken sentencepiece` (0.23.3, 0.14.0, 0.2.3). Usage: make_golden.py, in this folder.
"""
import base64
import json
import os
import random
import sys
import tempfile

import sentencepiece
import tiktoken

sys.path.insert(0, "../../parity")
import tokenizer_compare as kinds  # noqa: E402

TEXT = open("/usr/share/common-licenses/GPL-3").read()
OTHERS = "日本語 日本 中国語 über café naïve Ünïcode 1984 2024 1999 …  — «» русский текст ελληνικά " * 10
CASES = ["", " ", "the work and the source code", "  The  program's users DON'T, we'll 12345 x2024y\n\n  \tend ",
         "naïve café ÜBER e\u0301 ﬁ ½ ①", "日本語の中国語", "👩‍👩‍👧 \u00a0\u3000 ▁ <0x41>", "aA" * 30,
         "<|endoftext|>the <s> [UNK] <mask> é",
         "\U00010d50\U00031350\u0897 \u180e x", "русский ελληνικά", "x\r\ny\n", "a.b,c!!?? _x_ 'S '\u017f",
         "a▁", "▁", " ▁ a ▁ ", "\u00ad", " \u00ad a \u00ad ", "the thex 1the \u0301a", "ひらカナー日本日本語 привет Привет"]


def cases(encode, decode):
    random.seed(1)
    pieces = [each for case in CASES for each in case.split(" ") if each] + [" ", "\n"]
    texts = CASES + ["".join(random.choices(pieces, k=random.randint(2, 9))) for _ in range(12)]
    return [[text, encode(text), decode(encode(text))] for text in texts]


def row(name, file, content, found):
    return json.dumps({"name": name, "file": file, "content": base64.b64encode(content).decode(), "cases": found})


def main():
    texts = [TEXT[begin:begin + 3000] for begin in range(0, len(TEXT), 3000)] + [OTHERS] * 3
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as file:  # ﬁ -> fi, ½ -> 1/2, U+3000 -> space, e + acute -> é, U+AD goes
            file.write("FB01\t66 69\nBD\t31 2F 32\n3000\t20\n65 301\tE9\nA0\t20\nAD\t\n")
        plain = dict(normalization_rule_tsv=rules)
        wanted = {
            "bpe": dict(model_type="bpe", byte_fallback=True, character_coverage=0.98, vocab_size=450, **plain),
            "bpe unknown": dict(model_type="bpe", character_coverage=0.98, user_defined_symbols=["<sep>", "ab c"],
                                vocab_size=200, **plain),
            "bpe spaces": dict(model_type="bpe", remove_extra_whitespaces=False, add_dummy_prefix=False,
                               vocab_size=200, **plain),
            "unigram": dict(model_type="unigram", character_coverage=0.98, vocab_size=200, **plain),
            "unigram bytes": dict(model_type="unigram", byte_fallback=True, vocab_size=450, **plain),
            "unigram suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True, vocab_size=200, **plain)}
        models = dict(kinds.sentence_piece_files(texts, folder, kinds=wanted))
        for name, tokenizer in kinds.hugging_face_kinds(texts, 500, kinds.charsmap_of(models["sp bpe"])):
            value = json.loads(tokenizer.to_str())
            content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
            rows.append(row(name, "tokenizer.json", content, cases(
                lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
                lambda ids: tokenizer.decode(ids, skip_special_tokens=False))))
        for name, path in models.items():
            model = sentencepiece.SentencePieceProcessor(model_file=path)
            rows.append(row(name, "tokenizer.model", open(path, "rb").read(), cases(model.encode, model.decode)))
        ranks = {bytes([byte]): byte for byte in range(256)}
        for word in ("th", "the", " the", "an", "and", " and", "or", "er", "in", "on", "\n\n", "  ", "日本", "é"):
            ranks[word.encode()] = len(ranks)
        import tiktoken_ext.openai_public as public
        for name, pattern in {"r50k_base": public.r50k_pat_str, "cl100k_base": kinds.CL100K,
                              "o200k_base": kinds.PATTERNS["o200k"]}.items():
            encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
            content = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
            rows.append(row(name, name + ".tiktoken", content.encode(), cases(encoding.encode_ordinary,
                                                                             encoding.decode)))
        shift = 4
        tekken = {"config": {"pattern": kinds.TEKKEN, "default_vocab_size": len(ranks) + shift,
                             "default_num_special_tokens": shift},
                  "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode()}
                            for token, rank in ranks.items()] + [{"rank": len(ranks), "token_bytes": "eHl6"}]}
        encoding = tiktoken.Encoding("tekken", pat_str=kinds.TEKKEN, mergeable_ranks=ranks, special_tokens={})
        rows.append(row("tekken", "tekken.json", json.dumps(tekken).encode(), cases(
            lambda text: [i + shift for i in encoding.encode_ordinary(text)],
            lambda ids: encoding.decode([i - shift for i in ids]))))
    with open("golden.jsonl", "w") as file:
        file.write("\n".join(rows) + "\n")


main()
