"""The languages of the hosted checkout: texts, numbers, and names of countries and currencies."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import takewhile
from typing import Any

LOCALES = ("en", "ja", "th", "zh-Hant", "id", "ar")
OWN_NAMES = {
    "en": "English",
    "ja": "日本語",
    "th": "ไทย",
    "zh-Hant": "繁體中文",
    "id": "Bahasa Indonesia",
    "ar": "العربية",
}
_RIGHT_TO_LEFT = frozenset({"ar"})
_OLD_CODES = {"in": "id"}  # an old code of Indonesian, which Java still sends
#: Subtags that mean simplified characters, which our Chinese texts do not have.
_SIMPLIFIED = frozenset({"hans", "cn", "my", "sg"})
_HEADER_CHARS_MAX = 500
_WEIGHT = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Language:
    locale: str
    words: Mapping[str, str]
    decimal: str
    group: str
    countries: Mapping[str, str]  # in the order in which the language lists them
    currencies: Mapping[str, str]

    @property
    def direction(self) -> str:
        return "rtl" if self.locale in _RIGHT_TO_LEFT else "ltr"

    def t(self, key: str, **values: object) -> str:
        """Return a text with its values filled in; raises `KeyError` for an unknown key."""
        return self.words[key].format(**values)

    def pick(self, keys: Iterable[str]) -> dict[str, str]:
        """Return texts without their values, for scripts that fill these in."""
        return {key: self.words[key] for key in keys}

    def number(self, text: str) -> str:
        whole, _, fraction = text.partition(".")
        shown = f"{int(whole):,}".replace(",", self.group)
        return f"{shown}{self.decimal}{fraction}" if fraction else shown

    def money(self, text: str, currency: str) -> str:
        """Format an amount with its code: a symbol alone would not tell which dollar it is."""
        return f"{self.number(text)}\u00a0{currency}"


@cache
def load_language(locale: str) -> Language:
    cldr: dict[str, Any] = _read("cldr", locale)
    return Language(
        locale=locale,
        words=_read("texts", locale),
        decimal=cldr["decimal"],
        group=cldr["group"],
        countries=cldr["countries"],
        currencies=cldr["currencies"],
    )


def negotiate_language(requested: str | None, accepted: str, fallback: str) -> str:
    """Choose a language: the requested one, else the browser's, else the merchant's, else English.

    `accepted` is an `Accept-Language`, of which no more than 500 characters are read.
    """
    for tag in (requested or "", *_preferred(accepted), fallback):
        if (locale := _match_language(tag)) is not None:
            return locale
    return LOCALES[0]


def _match_language(tag: str) -> str | None:
    """Return the language that a tag means, such as `th-TH` or `zh_TW`; None where we lack it."""
    language, *subtags = tag.strip().lower().replace("_", "-").split("-")
    if language == "zh":
        return "zh-Hant" if "hant" in subtags or _SIMPLIFIED.isdisjoint(subtags) else None
    language = _OLD_CODES.get(language, language)
    return language if language in LOCALES else None


def _preferred(header: str) -> list[str]:
    """Parse an `Accept-Language` (RFC 9110 section 12.5.4), the preferred ones first.

    A buyer who accepts any language (`*`) no less than the remaining ones gets the merchant's.
    """
    if len(header) > _HEADER_CHARS_MAX:  # the last tag may be cut through
        header = header[:_HEADER_CHARS_MAX].rpartition(",")[0]
    ranges = [part.partition(";") for part in header.split(",")]
    weighted = [(_weight(parameter.strip()), tag.strip()) for tag, _, parameter in ranges]
    liked = sorted(
        weighted, key=lambda weighted_tag: -weighted_tag[0]
    )  # stable: of equal ones the first
    return list(takewhile(lambda tag: tag != "*", (tag for weight, tag in liked if weight > 0)))


def _weight(parameter: str) -> float:
    """Parse `q=0.8`; a missing value is 1, an invalid one 0."""
    if not parameter:
        return 1
    found = _WEIGHT.fullmatch(parameter)
    return float(found[1]) if found else 0


def _read(kind: str, locale: str) -> dict[str, Any]:
    file = resources.files("payintent") / "checkout" / "locales" / kind / f"{locale}.json"
    return json.loads(file.read_text(encoding="utf-8"))
