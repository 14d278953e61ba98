"""The letters for Chinese figures: `python tools/fonts.py NotoSansCJK-Regular.ttc COPYRIGHT` makes `dtk/fonts/`.

Both files are in Debian's package fonts-noto-cjk. Of the collection's face for Simplified Chinese it keeps what GB 2312
has and all full-width punctuation, a tenth of its size; without hints, which matplotlib makes by itself. The names,
version and license in the font stay. Made again by the same fontTools it is the same to the byte.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTCollection, TTFont

FONTS = Path(__file__).parent.parent / "dtk" / "fonts"
FONT, LICENSE = FONTS / "NotoSansCJKsc-Regular-gb2312.otf", FONTS / "OFL.txt"
FAMILY = "Noto Sans CJK SC"
COPYRIGHT, NAME = 0, 1  # of a font's table of names


def letters() -> set[int]:
    """Code points: ASCII, GB 2312, CJK punctuation, full-width forms, and the quotes and dashes of both."""
    pairs = (bytes([high, low]) for high in range(0xA1, 0xF8) for low in range(0xA1, 0xFF))
    chinese = {ord(letter) for pair in pairs for letter in pair.decode("gb2312", "ignore")}
    return chinese | {*range(0x20, 0x7F), *range(0x2010, 0x2028), *range(0x3000, 0x3020), *range(0xFF01, 0xFF5F)}


def face(collection: Path) -> TTFont:
    found = {font["name"].getDebugName(NAME): font for font in TTCollection(collection, lazy=True).fonts}
    return found[FAMILY]


def subset(font: TTFont) -> TTFont:
    options = Options()
    options.layout_features = []  # matplotlib sets no vertical lines and no other forms of a letter
    options.hinting = False
    options.name_IDs = options.name_languages = ["*"]
    options.notdef_outline = True
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=letters())
    subsetter.subset(font)
    font.recalcTimestamp = False
    return font


def license(font: TTFont, package: str) -> str:
    """The copyright that the font states and that of its package, then the license, which the package has in full."""
    holders = re.search(r"^Files: \*\nCopyright: (.*)$", package, re.MULTILINE)
    terms = re.search(r"^License: SIL-1\.1\n((?: .*\n)+)", package, re.MULTILINE)
    assert holders, "no copyright of all files in that file"
    assert terms, "no License: SIL-1.1 in that file"
    head = f"{FAMILY}: {font['name'].getDebugName(COPYRIGHT)} Noto: © {holders[1]}.\n"
    head += f"{FONT.name} is a part of it, made by tools/fonts.py.\n\n"
    return head + re.sub(r"^ \.?", "", terms[1], flags=re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collection", type=Path)
    parser.add_argument("copyright", type=Path)
    options = parser.parse_args(argv)
    FONTS.mkdir(exist_ok=True)
    font = subset(face(options.collection))
    font.save(FONT)
    LICENSE.write_text(license(font, options.copyright.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{FONT.name}: {len(font.getBestCmap()):,} letters, {FONT.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
