"""Compares weft's token ids with those of Hugging Face's tokenizers, tiktoken and sentencepiece, on texts of Debian
and on hostile ones, with tokenizers of every kind that are trained here and those that mistral-common and rs-bpe
ship (rs-bpe: the published cl100k_base and o200k_base). No part of CI. Needs
  pip install tokenizers tiktoken sentencepiece mistral-common rs-bpe    (0.23.3, 0.14.0, 0.2.3, 1.13.1, 0.1.0)
Usage: tokenizer_compare.py WEFT_TOKENIZER_SIDE [MEGABYTES] [KIND...]; WEFT_TOKENIZER_SIDE is the built
weft_tokenizer_side, KIND a part of names ("unigram"). Exit code 1: some ids differ.

Texts are man pages of several languages, headers, scripts and licences of this Debian. With WEFT_TEXTS they are those
of the packages of compare_packages.txt, which nobody needs to install:
  mkdir texts && cd texts && apt-get download $(cat ../tests/parity/compare_packages.txt)
  for each in *.deb; do dpkg-deb -x $each .; done
  tar -xJf usr/src/linux-source-6.1.tar.xz --wildcards '*/kernel' '*/mm' '*/fs' '*/Documentation'
"""
import base64
import glob
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

O200K_END = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "llama3": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3.5": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+",
    "o200k": f"[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?|[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}+{LOWER}*"
             f"{CONTRACTION}?" + O200K_END,
}
TEKKEN = (f"[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}*{LOWER}+|[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}+{LOWER}*"
          + O200K_END.replace("{1,3}", ""))
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"]
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "<unk>", "[UNK]", "<mask>", "<|im_start|>"]


def debian_texts(most_bytes):
    """Returns documents of about 4 kB, of each kind the same share."""
    patterns = ("/usr/share/man/man*/*.gz", "/usr/share/man/??/man*/*.gz", "/usr/include/**/*.h",
                "/usr/lib/python3*/**/*.py", "/usr/share/perl/**/*.p[lm]", "/usr/share/doc/**/copyright",
                "/usr/share/i18n/locales/*")
    root = os.environ.get("WEFT_TEXTS", "")
    if root:
        patterns = ("/usr/share/man/man*/*.gz", "/usr/share/man/??/man*/*.gz", "/usr/share/man/[!mz]*/man*/*.gz",
                    "/linux-source*/kernel/**/*.c", "/linux-source*/mm/**/*.c", "/linux-source*/fs/**/*.[ch]",
                    "/linux-source*/Documentation/**/*.rst")
    kinds = [sorted(glob.glob(root + pattern, recursive=True)) for pattern in patterns]
    texts = []
    for files in kinds:
        random.shuffle(files)
        share = most_bytes // len(kinds)
        for path in files:
            try:
                data = (gzip.open(path) if path.endswith(".gz") else open(path, "rb")).read()
            except OSError:
                continue
            text = data[:min(len(data), 200_000)].decode("utf-8", "replace")
            for begin in range(0, len(text), 4000):
                texts.append(text[begin:begin + 4000])
            share -= len(data)
            if share < 0:
                break
    return texts


def hostile_texts():
    """Returns texts that nobody writes."""
    assigned = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    newer = [p for p in assigned if unicodedata.category(chr(p)) == "Cn" and p < 0x33000]
    pieces = SPECIALS + [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'\u017f", "a", "Z", "é", "e\u0301", "\u0301",
                         "日本", "1234567", "½",
                         "\u00a0", "\u3000", "\u2028", "\u180e", "\u200d", "👩‍👩‍👧", "ﬁ", "▁", "<0x41>", "İ", "ẞ",
                         "-", "--", "!?", "_", "\u0000", "\ufeff", "\ufffd", "क्षि", "สวัสดี", "𞤀", "\U00010d50",
                         "\u00ad", "ひら", "カナー", "привет"]
    texts = ["", " ", "\n", "a"]
    for _ in range(60):
        texts.append("".join(map(chr, random.choices(assigned, k=300))))
        texts.append("".join(map(chr, random.choices(newer, k=200))))
        texts.append("".join(map(chr, random.choices(assigned[:0x3000], k=300))))
    for _ in range(1500):
        texts.append("".join(random.choices(pieces, k=random.randint(1, 30))))
    for run in ("a", " ", "\n", "1", "!", "é", "aA", "\u0301", "日", "x ", "▁", "\u00ad"):
        texts.append(run * (1_000_000 // len(run.encode())))
    return texts


def train(model, trainer, texts, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def charsmap_of(path):
    """Returns normalizer_spec.precompiled_charsmap of a sentencepiece model."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value, shift = 0, 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            size = {0: 0, 1: 8, 5: 4}.get(key & 7)
            if key & 7 == 0:
                varint()
            size = varint() if size is None else size
            yield key >> 3, data[at:at + size]
            at += size
    spec = dict(fields(open(path, "rb").read()))[3]
    return dict(fields(spec)).get(2, b"")


def hugging_face_kinds(texts, most_tokens=12000, charsmap=None):
    """Yields names and tokenizers of every kind."""
    sized = lambda wanted, least=300: max(least, wanted * most_tokens // 12000)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    specials = ["<|endoftext|>", "<|im_start|>"]

    def byte_level(splits, **parts):
        steps = [pre_tokenizers.Split(Regex(each), "isolated") for each in splits] + [level]
        return train(models.BPE(), trainers.BpeTrainer(vocab_size=sized(12000), initial_alphabet=alphabet,
                                                       special_tokens=specials, show_progress=False), texts,
                     pre_tokenizer=pre_tokenizers.Sequence(steps), decoder=decoders.ByteLevel(), **parts)

    gpt2 = train(models.BPE(), trainers.BpeTrainer(vocab_size=sized(12000), initial_alphabet=alphabet,
                                                    show_progress=False,
                                                   special_tokens=specials), texts,
                 pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel())
    yield "gpt2", gpt2
    added = Tokenizer.from_str(gpt2.to_str())
    added.add_tokens([AddedToken("the", single_word=True), AddedToken("<mask>", lstrip=True, normalized=False),
                      AddedToken("  "), AddedToken("é", rstrip=True)])
    added.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[
        ("<|endoftext|>", added.token_to_id("<|endoftext|>"))])
    yield "gpt2 added", added
    for name, pattern in PATTERNS.items():
        parts = {"normalizer": normalizers.NFC()} if name.startswith("qwen") else {}
        yield name, byte_level([pattern], **parts)
    yield "deepseek", byte_level(DEEPSEEK)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=True)])
    yield "smollm", train(models.BPE(), trainers.BpeTrainer(vocab_size=sized(6000), initial_alphabet=alphabet,
                                                            show_progress=False), texts, pre_tokenizer=digits,
                          decoder=decoders.ByteLevel())
    mixed = pre_tokenizers.Sequence([level, pre_tokenizers.Punctuation("contiguous")])
    yield "bytes before punctuation", train(
        models.BPE(), trainers.BpeTrainer(vocab_size=sized(3000), initial_alphabet=alphabet,
                                            show_progress=False), texts[:200],
        pre_tokenizer=mixed, decoder=decoders.ByteLevel())
    scripts = [r"\p{Han}{1,2}+|\p{^Greek}[\p{Hiragana}\p{Katakana}]{2,3}+", r"\p{Cyrillic}{2}?x|\P{Latin}{,2}"]
    yield "scripts", byte_level(scripts)
    yield "cut scripts", train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(
        vocab_size=sized(3000), special_tokens=["<unk>"], limit_alphabet=sized(300, 100), show_progress=False), texts,
        pre_tokenizer=pre_tokenizers.UnicodeScripts())
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    spaces = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])

    def sentence_like(words, **parts):
        trained = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer(
            vocab_size=sized(9000, 700), special_tokens=["<unk>", "<s>"] + fallback, limit_alphabet=sized(300, 100),
            show_progress=False),
            texts, pre_tokenizer=words, decoder=spaces)
        value = json.loads(trained.to_str())
        value["pre_tokenizer"], value["added_tokens"] = None, value["added_tokens"][:2]
        tokenizer = Tokenizer.from_str(json.dumps(value))
        for key, part in parts.items():
            setattr(tokenizer, key, part)
        return tokenizer

    marked = pre_tokenizers.Metaspace()
    yield "gemma", sentence_like(marked, normalizer=normalizers.Replace(" ", "▁"),
                                 pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"))
    yield "llama2", sentence_like(marked, normalizer=normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    yield "phi3 metaspace", sentence_like(marked, pre_tokenizer=pre_tokenizers.Metaspace(
        prepend_scheme="first", split=False))
    yield "first behind strip", sentence_like(marked, normalizer=normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(Regex("th|x"), "y"), normalizers.Replace("1", ""),
         normalizers.StripAccents()]), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"))
    yield "crossing marks", sentence_like(pre_tokenizers.Sequence([pre_tokenizers.Metaspace(split=False)]),
                                          normalizer=normalizers.Replace(" ", "▁"))
    yield "bpe unk", train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(
        vocab_size=sized(3000), special_tokens=["<unk>"], limit_alphabet=80, show_progress=False), texts,
        pre_tokenizer=pre_tokenizers.Whitespace())
    yield "bpe fuse suffix", train(models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix="</w>"),
                                   trainers.BpeTrainer(vocab_size=sized(3000), special_tokens=["<unk>"],
                                                       limit_alphabet=80,
                                                       end_of_word_suffix="</w>", show_progress=False), texts,
                                   pre_tokenizer=pre_tokenizers.WhitespaceSplit(), decoder=decoders.BPEDecoder())
    yield "bpe prefix", train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), trainers.BpeTrainer(
        vocab_size=sized(3000), special_tokens=["<unk>"], limit_alphabet=80, continuing_subword_prefix="##",
        show_progress=False), texts, pre_tokenizer=pre_tokenizers.CharDelimiterSplit(" "))
    yield "unigram", train(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=sized(6000), special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False), texts,
        normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                         normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())
    if charsmap is not None:
        yield "unigram precompiled", train(models.Unigram(), trainers.UnigramTrainer(
            vocab_size=sized(6000), special_tokens=["<unk>"], unk_token="<unk>", show_progress=False), texts,
            normalizer=normalizers.Precompiled(charsmap),
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
            decoder=decoders.Metaspace())
    yield "word piece", train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(
        vocab_size=sized(6000), special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False), texts,
        normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece())
    yield "word piece cased", train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(
        vocab_size=sized(3000), special_tokens=["[UNK]"], show_progress=False), texts,
        normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFD(), normalizers.StripAccents(),
                                         normalizers.Lowercase()]),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
        decoder=decoders.WordPiece(cleanup=False))


def sentence_piece_files(texts, folder, num_tokens=8000, kinds=None):
    """Trains models and yields names and files."""
    source = os.path.join(folder, "lines.txt")
    with open(source, "w") as file:
        for text in texts:
            file.write("\n".join(line for line in text.split("\n") if "\0" not in line)[:4000] + "\n")
    kinds = kinds or {
        "bpe": dict(model_type="bpe", byte_fallback=True, character_coverage=0.995),
        "bpe unknown": dict(model_type="bpe", character_coverage=0.98, user_defined_symbols=["<sep>", "ab c"]),
        "bpe identity": dict(model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False,
                             add_dummy_prefix=False, byte_fallback=True),
        "unigram": dict(model_type="unigram", character_coverage=0.995),
        "unigram bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf"),
        "unigram suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True),
    }
    for name, options in kinds.items():
        prefix = os.path.join(folder, name.replace(" ", "_"))
        sentencepiece.SentencePieceTrainer.train(input=source, model_prefix=prefix, minloglevel=2, **{
            "vocab_size": num_tokens, "max_sentence_length": 100000, "hard_vocab_limit": False} | options)
        yield "sp " + name, prefix + ".model"


def mistral_files():
    import mistral_common
    for path in sorted(glob.glob(os.path.dirname(mistral_common.__file__) + "/data/*.model*")):
        yield "sp " + os.path.basename(path), path


def tiktoken_kinds(texts, folder):
    """Yields names, files and encodings."""
    import mistral_common
    import tiktoken_ext.openai_public as public
    for path in sorted(glob.glob(os.path.dirname(mistral_common.__file__) + "/data/tekken*.json")):
        tekken = json.load(open(path))
        config = tekken["config"]
        kept = config["default_vocab_size"] - config["default_num_special_tokens"]
        ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in tekken["vocab"][:kept]}
        yield os.path.basename(path), path, tiktoken.Encoding(
            "tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}), \
            config["default_num_special_tokens"]
    sources = {"cl100k_base": CL100K,
               "r50k_base": public.r50k_pat_str, "o200k_base": PATTERNS["o200k"]}
    yield from published_kinds(folder, sources)
    for name, pattern in sources.items():
        path = os.path.join(folder, name + ".tiktoken")
        with open(path, "w") as file:
            first_special = {"cl100k_base": 100257, "r50k_base": 50256, "o200k_base": 199999}[name]
            kept = {token: rank for token, rank in ranks.items() if rank < first_special}
            for token, rank in kept.items():
                file.write(f"{base64.b64encode(token).decode()} {rank}\n")
        yield name, path, tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=kept, special_tokens={}), 0


def published_kinds(folder, patterns):
    """Yields what rs-bpe ships: the tokens that OpenAI publishes."""
    try:
        from rs_bpe.bpe import openai
    except ImportError:
        print("without rs-bpe: cl100k_base and o200k_base are not the published ones")
        return
    published = os.path.join(folder, "published")
    os.mkdir(published)
    for name, engine, count in (("cl100k_base", openai.cl100k_base, 100256),
                                ("o200k_base", openai.o200k_base, 199998)):
        tokens = engine().bpe()
        ranks = {bytes(tokens.decode_tokens([rank])): rank for rank in range(count)}
        path = os.path.join(published, name + ".tiktoken")
        with open(path, "w") as file:
            file.writelines(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
        yield "published " + name, path, tiktoken.Encoding(
            name, pat_str=patterns[name], mergeable_ranks=ranks, special_tokens={}), 0


def answers(side, path, mode, texts):
    data = b"".join(struct.pack("<I", len(each)) + each for each in (text.encode() for text in texts))
    done = subprocess.run([side, path, mode], input=data, stdout=subprocess.PIPE, check=True, timeout=1500)
    out, at, result = done.stdout, 0, []
    for _ in texts:
        count = struct.unpack_from("<i", out, at)[0]
        at += 4
        if count < 0:
            result.append((None, None))
            continue
        ids = list(struct.unpack_from(f"<{count}i", out, at))
        at += 4 * count
        size = struct.unpack_from("<i", out, at)[0]
        result.append((ids, out[at + 4:at + 4 + size].decode("utf-8", "replace")))
        at += 4 + size
    return result


def compare(name, side, path, mode, texts, encode, decode):
    differ, shown, wrong_texts, original_fails = 0, None, 0, 0
    for text, (ids, decoded) in zip(texts, answers(side, path, mode, texts)):
        try:
            expected = encode(text)
        except KeyboardInterrupt:
            raise
        except BaseException:  # tiktoken's engine panics on runs of a megabyte
            original_fails += 1
            continue
        if ids != expected:
            differ += 1
            if shown is None or len(text) < len(shown[0]):
                shown = (text, expected, ids)
        elif decode is not None and decoded != decode(ids):
            wrong_texts += 1
            shown = shown or (text, decode(ids), decoded)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{name} ({mode}): {len(texts)} texts, {size:.1f} MB, {differ} differ, {wrong_texts} decode otherwise"
          + (f", the original fails on {original_fails}" if original_fails else ""), flush=True)
    if shown:
        print("  ", *(repr(each)[:300] for each in shown), sep="\n    ", flush=True)
    return differ + wrong_texts


def main():
    side, megabytes = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30
    wanted = sys.argv[3:]
    random.seed(20261128)
    texts = debian_texts(int(megabytes * 1e6))
    training = texts[::max(1, len(texts) // 700)]
    texts += hostile_texts()
    wrong = 0

    def is_wanted(name):
        return not wanted or any(each in name for each in wanted)

    with tempfile.TemporaryDirectory() as folder:
        models_of = dict(sentence_piece_files(training, folder)) | dict(mistral_files())
        charsmap = charsmap_of(models_of["sp bpe"])
        for name, tokenizer in hugging_face_kinds(training, charsmap=charsmap):
            if not is_wanted(name):
                continue
            path = os.path.join(folder, "tokenizer.json")
            tokenizer.save(path)
            for mode in ("parse", "text"):
                tokenizer.encode_special_tokens = mode == "text"
                wrong += compare(name, side, path, mode, texts if mode == "parse" else texts[-1600:],
                                 lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
                                 lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
        for name, path, encoding, shift in tiktoken_kinds(training, folder):
            if is_wanted(name):
                wrong += compare(name, side, path, "text", texts,
                                 lambda text: [i + shift for i in encoding.encode_ordinary(text)],
                                 lambda ids: encoding.decode([i - shift for i in ids]))
        for name, path in models_of.items():
            if is_wanted(name):
                model = sentencepiece.SentencePieceProcessor(model_file=path)
                wrong += compare(name, side, path, "text", texts, model.encode, model.decode)
    print("all equal" if wrong == 0 else f"{wrong} texts differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
