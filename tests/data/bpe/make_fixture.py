"""Makes tokenizer.json and expected.json: a small byte-level BPE, and what Hugging Face's own
implementation of it makes of some texts. Needs `pip install tokenizers` (0.23.3 made the files here).
Usage: make_fixture.py, in this folder.
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


main()
