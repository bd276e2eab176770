"""The fonts of documents: Inter, and Noto for the world's scripts, from packages. The system's own
fonts are never used, so that a document is the same on every machine.

Chinese, Japanese and Korean are an extra, `penstock[fonts-cjk]`, because they take 33 MB.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import typst

PACKAGES = ("manimgx_fonts", "manimgx_fonts_cjk")
FOLDER = Path(__file__).parent / "fonts"
HAN_BY_COUNTRY = {"JP": "JP", "KR": "KR", "TW": "TC", "HK": "HK", "MO": "HK"}
"""Which forms Chinese characters have, by the buyer's country; the simplified ones elsewhere."""
NOT_SET = frozenset({"Co", "Cn"})
"""Categories of characters that mean nothing outside of one system: no document shows them."""
PROBE = b"""
#let data = json(bytes(sys.inputs.data))
#set text(font: data.families)
#for one in data.texts [#one #parbreak()]
"""
_NO_GLYPH = re.compile(r'the text `"(.+?)"` could not be displayed', re.DOTALL)
_ESCAPED = re.compile(r"\\u\{([0-9a-f]+)\}")


@cache
def fonts() -> typst.Fonts:
    """Return all fonts that documents are set in."""
    specs = [find_spec(name) for name in PACKAGES]
    folders = [Path(spec.origin).parent for spec in specs if spec and spec.origin]
    return typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=True, font_paths=[FOLDER, *folders]
    )


@cache
def families(country: str = "") -> list[str]:
    """Return the families in the order in which a character is looked for; those of a country's
    Chinese characters before the others."""
    noto = [name for name in fonts().families() if name.startswith("Noto ")]
    han = f"Noto Sans CJK {HAN_BY_COUNTRY.get(country, 'SC')}"
    order = ["Inter", "Noto Sans", han, *noto, "Libertinus Serif", "DejaVu Sans Mono"]
    known = set(fonts().families())
    return [name for name in dict.fromkeys(order) if name in known]


def unprintable(texts: Iterable[str]) -> str:
    """Return the characters, each once, that no font has."""
    foreign = [text for text in texts if not text.isascii()]
    if not foreign:
        return ""
    found = [one for text in foreign for one in text if unicodedata.category(one) in NOT_SET]
    try:
        typst.compile(
            PROBE, font_paths=fonts(), format="pdf", pdf_standards="a-2b",
            sys_inputs={"data": json.dumps({"families": families(), "texts": foreign})},
        )  # fmt: skip
    except typst.TypstError as error:
        missing = _NO_GLYPH.findall(error.diagnostic)
        if not missing:
            raise
        found += [_ESCAPED.sub(lambda match: chr(int(match[1], 16)), one) for one in missing]
    return "".join(dict.fromkeys("".join(found)))
