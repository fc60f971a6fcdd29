"""Makes tokenizer.json and expected.json: a small byte-level BPE, and what Hugging Face's own
implementation of it makes of some texts; and variants.json: changes of tokenizer.json (added tokens,
post-processors, Llama 3's way to cut words), each with texts and their ids.
Needs `pip install tokenizers` (0.23.3 made the files here). Usage: make_fixture.py, in this folder.
"""
import json
import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = open("/usr/share/common-licenses/GPL-3").read()
OTHERS = "日本語 日本 中国語 über café naïve 1984 2024 1999 …  —  «» " * 20
CASES = [
    "the work and the source code",
    "The  program's  users don't, won't, we'll, I'LL they've",
    "  leading and trailing  ", "a\n\n b\t\tc \n", "日本語の中国語", "naïve café über-cool 1984 x2024y ١٢٣ ½ Ⅷ",
    "\u00a0nbsp\u2003em\u3000wide", "emoji 👩‍👩‍👧 e\u0301 ﬁ", "a" * 40, "   ", " ", "\n", "'s 's's ' s'",
    "license—the «General» … public", "_under_score__", "ᚠᛇᚻ ⅓ ०१२ ꙮ 𝔘𝔫𝔦 🄰", "x" + " " * 9 + "y",
    "the the", "<|end", "",
]
PIECES = ["the", "license", " ", "  ", "\n", "\t", "'s", "'ll", "'", "1", "42", "日本", "é", "ß", "Ω", "½",
          "\u00a0", "\u2028", "\u3000", "—", "!", "?!", "_", "𝔘", "🙂", "e\u0301", "\u200d", "A", "zz", "٣"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True} | flags


def template(before, after, ids):
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}} for name in before]
    pieces += [{"Sequence": {"id": "A", "type_id": 0}}]
    pieces += [{"SpecialToken": {"id": name, "type_id": 0}} for name in after]
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces + [
        {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in before + after}}


END = added(0, "<|endoftext|>")
ADDED = [END, added(420, "<|im_start|>"), added(421, "<|im_start|>user"), added(422, "  ", special=False),
         added(423, "<mask>", lstrip=True), added(424, "<r>", rstrip=True), added(425, "the work", normalized=True),
         added(166, "\u00e9", special=False, normalized=True),
         added(426, "work<", special=False)]  # the vocabulary holds \u00e9, as byte 233
IDS = {"<s>": 420, "</s>": 421}
WRAPPERS = [END, added(420, "<s>"), added(421, "</s>")]
LLAMA3_WORDS = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
    BYTE_LEVEL | {"use_regex": False}]}
# Name -> what it changes in tokenizer.json, by JSON pointer.
VARIANTS = {
    "added": {"/added_tokens": ADDED},
    "begin": {"/added_tokens": WRAPPERS, "/post_processor": template(["<s>"], [], IDS)},
    "both": {"/added_tokens": WRAPPERS, "/post_processor": {"type": "Sequence", "processors": [
        BYTE_LEVEL, template(["<s>", "<s>"], ["</s>"], IDS)]}},
    "roberta": {"/added_tokens": WRAPPERS, "/post_processor": {
        "type": "RobertaProcessing", "sep": ["</s>", 421], "cls": ["<s>", 420], "trim_offsets": True,
        "add_prefix_space": False}},
    "llama3": {"/added_tokens": WRAPPERS, "/pre_tokenizer": LLAMA3_WORDS, "/model/ignore_merges": True,
               "/post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, template(["<s>"], [], IDS)]}},
    "whole_words": {"/model/ignore_merges": True, "/model/merges": []},
}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_start|>user", "<mask>", "<r>", "the work", "work<", "<s>",
            "</s>", "<|im_start", "'S", "'LL", "\u0027\u017f", "1234567", "\r\n", "\n\n  ", "\t", "(x"]


def changed(whole, changes):
    whole = json.loads(json.dumps(whole))
    for pointer, value in changes.items():
        *path, last = pointer[1:].split("/")
        at = whole
        for key in path:
            at = at[key]
        at[last] = value
    return whole


def write_variants(whole):
    out = []
    for name, changes in VARIANTS.items():
        tokenizer = Tokenizer.from_str(json.dumps(changed(whole, changes)))
        texts = CASES + ["".join(random.choices(PIECES + SPECIALS * 3, k=random.randint(2, 14))) for _ in range(60)]
        cases = [json.dumps([text, tokenizer.encode(text).ids]) for text in texts]
        out.append('{"name": %s, "changes": %s, "cases": [\n%s]}' % (
            json.dumps(name), json.dumps(changes), ",\n".join(cases)))
    with open("variants.json", "w") as file:
        file.write("[" + ",\n".join(out) + "]\n")


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT, OTHERS], trainer=trainer)
    whole = json.loads(tokenizer.to_str())
    random.seed(20261121)
    cases = CASES + ["".join(random.choices(PIECES, k=random.randint(2, 14))) for _ in range(80)]
    with open("tokenizer.json", "w") as file:
        json.dump(whole, file, ensure_ascii=True, separators=(",", ":"))
    with open("expected.json", "w") as file:
        rows = [json.dumps([case, tokenizer.encode(case).ids]) for case in cases]
        file.write("[" + ",\n".join(rows) + "]\n")
    write_variants(whole)


main()
