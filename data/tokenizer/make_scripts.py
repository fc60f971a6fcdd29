"""Writes script_tables.cc: the scripts that \\p{..} names, with what Unicode 16, as the engine of Hugging Face's
tokenizers knows it, says of characters of which PCRE2 10.42 of Debian 12 (Unicode 14) says nothing; and the scripts
between which its pre-tokenizer UnicodeScripts cuts, which come from an older table of its own.
Needs libpcre2-8-0 and `pip install tokenizers` (0.23.3 made the file here). Usage: make_scripts.py, in this folder;
then clang-format.
"""
import ctypes

from tokenizers import pre_tokenizers

from make_newer_unicode import POINTS, members, rows, runs

NAMES = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting
Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet
Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


class Pcre2:
    def __init__(self):
        self.library = ctypes.CDLL("libpcre2-8.so.0")
        for name in ("pcre2_compile_8", "pcre2_match_data_create_8", "pcre2_get_ovector_pointer_8"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.text = "".join(map(chr, POINTS)).encode()
        self.place = {}  # of a byte: the index of its code point
        at = 0
        for index, point in enumerate(POINTS):
            self.place[at] = index
            at += len(chr(point).encode())
        self.place[at] = len(POINTS)

    def members(self, expression):
        """Returns the code points that the expression, of one character, finds; None: it is no expression."""
        lib, pattern = self.library, expression.encode()
        error, offset = ctypes.c_int(), ctypes.c_size_t()
        utf_and_ucp = 0x00080000 | 0x00020000
        code = lib.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), utf_and_ucp, ctypes.byref(error),
                                   ctypes.byref(offset), None)
        if code is None:
            return None
        data, found, at = lib.pcre2_match_data_create_8(1, None), set(), 0
        while True:
            count = lib.pcre2_match_8(ctypes.c_void_p(code), self.text, ctypes.c_size_t(len(self.text)),
                                      ctypes.c_size_t(at), 0x40000000, ctypes.c_void_p(data), None)
            if count < 0:
                return found
            ends = ctypes.cast(lib.pcre2_get_ovector_pointer_8(ctypes.c_void_p(data)),
                               ctypes.POINTER(ctypes.c_size_t))
            found.update(POINTS[self.place[ends[0]]:self.place[ends[1]]])
            at = ends[1]


def cut_scripts():
    """Returns for each code point the number of the script by which UnicodeScripts cuts; 0: it never cuts there."""
    cutter = pre_tokenizers.UnicodeScripts()
    cuts = lambda text: cutter.pre_tokenize_str(text)
    known = [point for point in POINTS if cuts(chr(point))]
    text, of, firsts = "".join(map(chr, known)), dict.fromkeys(POINTS, 0), []
    for _, (begin, end) in cuts(text):
        number = next((i for i, first in enumerate(firsts) if len(cuts(first + text[begin])) == 1), len(firsts))
        if number == len(firsts):
            firsts.append(text[begin])
        of.update(dict.fromkeys(known[begin:end], number + 1))
    return of


def main():
    pcre2, newer, names = Pcre2(), {}, []
    for name in NAMES:
        now = members(r"\p{%s}" % name)
        before = pcre2.members(r"\p{sc:%s}+" % name)
        gone = (before or set()) - now
        if gone:
            print(name, "lost", [hex(point) for point in sorted(gone)])
        names.append((name, before is None))
        newer.update(dict.fromkeys(now - (before or set()), name))
    cut = [run for run in runs(cut_scripts()) if run[2]]
    with open("script_tables.cc", "w") as file:
        file.write("// Written by make_scripts.py.\n#include \"data/tokenizer/scripts.h\"\n\nnamespace weft {\n"
                   "namespace {\n\nconstexpr NamedScript kScriptNames[] = {\n")
        file.write(rows("{\"%s\", %s}" % (name, "true" if is_newer else "false") for name, is_newer in names))
        file.write("};\n\nconstexpr NewerScript kNewerScripts[] = {\n")
        file.write(rows("{0x%X, 0x%X, \"%s\"}" % tuple(run) for run in runs(newer)))
        file.write("};\n\nconstexpr CutScript kCutScripts[] = {\n")
        file.write(rows("{0x%X, 0x%X, %d}" % tuple(run) for run in cut))
        file.write("};\n\n}  // namespace\n\nabsl::Span<const NamedScript> ScriptNames() {\n  return kScriptNames;\n}\n\n"
                   "absl::Span<const NewerScript> NewerScripts() {\n  return kNewerScripts;\n}\n\n"
                   "absl::Span<const CutScript> CutScripts() {\n  return kCutScripts;\n}\n\n}  // namespace weft\n")


if __name__ == "__main__":
    main()
