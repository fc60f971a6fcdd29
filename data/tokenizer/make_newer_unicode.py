"""Writes newer_unicode.cc: what Unicode 16, as Hugging Face's tokenizers know it, says of code points of which
Unicode 14 (PCRE2 10.42 of Debian 12; this Python's unicodedata) says something else; and the classes of characters
that parts of tokenizers have of their own, some of them from older versions.
Needs Python 3.11, libutf8proc2 and `pip install tokenizers` (0.23.3 made the file here). Usage:
make_newer_unicode.py, in this folder; then clang-format.
"""
import ctypes
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", "Python 3.11 knows Unicode 14; this one knows another"
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def members(expression):
    """Returns the code points that the expression, of one character, finds."""
    split = pre_tokenizers.Split(Regex(expression), "removed")
    found = set()
    for begin in range(0, len(POINTS), 50000):
        chunk = POINTS[begin:begin + 50000]
        left = set()
        for _, (first, last) in split.pre_tokenize_str("".join(map(chr, chunk))):
            left.update(chunk[first:last])
        found.update(set(chunk) - left)
    return found


def isolated(split):
    """Returns the code points that a pre-tokenizer cuts out of a text of letters."""
    return {point for point in POINTS if len(split.pre_tokenize_str("a" + chr(point) + "a")) != 1}


def dropped(normalizer):
    return {point for point in POINTS if normalizer.normalize_str(chr(point)) == ""}


def inert():
    """Returns what normalization does nothing to in tokenizers, which knows an older Unicode, and in utf8proc does."""
    library = ctypes.CDLL("libutf8proc.so.2")

    def utf8proc(name, text):
        function = getattr(library, "utf8proc_" + name)
        function.restype = ctypes.c_void_p
        return ctypes.string_at(function(text.encode())).decode()

    forms = {"NFD": normalizers.NFD(), "NFKD": normalizers.NFKD()}
    # U+0345 has the greatest combining class: what has a lower one comes before it.
    return {point for point in POINTS if point and any(
        form.normalize_str(text) != utf8proc(name, text) for name, form in forms.items()
        for text in (chr(point), "a\u0345" + chr(point)))}


def bert(**switches):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                                         "lowercase": False} | switches)


def runs(points):
    """Returns [first, last, value] of neighbours with the same value."""
    out = []
    for point, value in sorted(points.items()):
        if out and out[-1][1] == point - 1 and out[-1][2] == value:
            out[-1][1] = point
        else:
            out.append([point, point, value])
    return out


def rows(lines):
    text, line = "", "   "
    for each in lines:
        if len(line) + len(each) + 2 > 100:
            text, line = text + line + "\n", "   "
        line += f" {each},"
    return text + line + "\n"


def main():
    new = {}
    for category in CATEGORIES:
        for point in members(r"\p{%s}" % category):
            if unicodedata.category(chr(point)) != category:
                new[point] = category
    word = members(r"\w")
    plain = {p for p in POINTS if new.get(p, unicodedata.category(chr(p))) in
             ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc")}
    assert not plain - word, sorted(plain - word)[:10]
    lower = {}
    for point in POINTS:
        mapped = normalizers.Lowercase().normalize_str(chr(point))
        if mapped != chr(point).lower() and len(mapped) == 1:
            lower[point] = ord(mapped)
    moved = {hex(p): (unicodedata.category(chr(p)), c) for p, c in new.items()
             if unicodedata.category(chr(p)) != "Cn"}
    print("categories that changed:", moved)
    classes = {"Number": isolated(pre_tokenizers.Digits(individual_digits=True)),
               "Punctuation": isolated(pre_tokenizers.Punctuation()),
               "Accent": dropped(normalizers.StripAccents()),
               "BertAccent": dropped(bert(strip_accents=True)),
               "BertControl": dropped(bert(clean_text=True)),
               "Inert": inert()}
    with open("newer_unicode.cc", "w") as file:
        file.write("// Written by make_newer_unicode.py.\n#include \"data/tokenizer/newer_unicode.h\"\n\n"
                   "namespace weft {\nnamespace {\n\nconstexpr CategoryRange kCategories[] = {\n")
        file.write(rows("{0x%X, 0x%X, \"%s\"}" % tuple(run) for run in runs(new)).rstrip(",\n"))
        file.write("};\n\nconstexpr PointRange kWordBesides[] = {\n")
        file.write(rows("{0x%X, 0x%X}" % tuple(run[:2]) for run in runs(dict.fromkeys(word - plain, 0))).rstrip(",\n"))
        file.write("};\n\nconstexpr PointRange kLower[] = {\n")
        file.write(rows("{0x%X, 0x%X}" % pair for pair in sorted(lower.items())).rstrip(",\n"))
        for name, points in classes.items():
            file.write("};\n\nconstexpr PointRange k%ss[] = {\n" % name)
            file.write(rows("{0x%X, 0x%X}" % tuple(run[:2]) for run in runs(dict.fromkeys(points, 0))).rstrip(",\n"))
        file.write("};\n\n}  // namespace\n\nabsl::Span<const CategoryRange> NewerCategories() {\n"
                   "  return kCategories;\n}\n\nabsl::Span<const PointRange> WordBesides() {\n"
                   "  return kWordBesides;\n}\n\nabsl::Span<const PointRange> NewerLower() {\n  return kLower;\n}\n\n")
        for name in classes:
            file.write("absl::Span<const PointRange> %sPoints() {\n  return k%ss;\n}\n\n" % (name, name))
        file.write("}  // namespace weft\n")


if __name__ == "__main__":
    main()
