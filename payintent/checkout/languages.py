"""Translations, number formats, and country and currency names of the hosted checkout."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import takewhile
from typing import Any

from payintent.core.languages import LOCALES

_RIGHT_TO_LEFT = frozenset({"ar"})
_OLD_CODES = {"in": "id"}  # the former code for Indonesian, still sent by older Java versions
#: Subtags that indicate simplified Chinese; our Chinese translation is traditional.
_SIMPLIFIED = frozenset({"hans", "cn", "my", "sg"})
_HEADER_CHARS_MAX = 500
_MINUTE_S = 60
_WEIGHT = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Language:
    locale: str
    translations: Mapping[str, str]
    decimal: str
    group: str
    countries: Mapping[str, str]  # in the language's collation order
    currencies: Mapping[str, str]

    @property
    def direction(self) -> str:
        return "rtl" if self.locale in _RIGHT_TO_LEFT else "ltr"

    def t(self, key: str, **values: object) -> str:
        """Translate a key and insert `values`; raise `KeyError` if the key is unknown."""
        return self.translations[key].format(**values)

    def number(self, text: str) -> str:
        whole, _, fraction = text.partition(".")
        digits = f"{int(whole):,}".replace(",", self.group)
        return f"{digits}{self.decimal}{fraction}" if fraction else digits

    def money(self, text: str, currency: str) -> str:
        """Format an amount with its currency code, because symbols such as $ are ambiguous."""
        return f"{self.number(text)}\u00a0{currency}"

    def duration(self, seconds: int) -> str:
        """Describe how long a transfer on a network usually takes to become final."""
        minutes = round(seconds / _MINUTE_S)
        if seconds < _MINUTE_S:
            return self.t("usual_soon")
        return self.t("usual_minutes", minutes=minutes) if minutes > 1 else self.t("usual_one")


@cache
def load_language(locale: str) -> Language:
    cldr: dict[str, Any] = _read_json("cldr", locale)
    return Language(
        locale=locale,
        translations=_read_json("texts", locale),
        decimal=cldr["decimal"],
        group=cldr["group"],
        countries=cldr["countries"],
        currencies=cldr["currencies"],
    )


def negotiate_language(requested_locale: str | None, accept_language: str, fallback: str) -> str:
    """Return the first supported language from the request, the browser or the merchant.

    The default is English. Only the first 500 characters of `accept_language` are read.
    """
    for tag in (requested_locale or "", *_preferred_tags(accept_language), fallback):
        if (locale := _match_language(tag)) is not None:
            return locale
    return LOCALES[0]


def _match_language(tag: str) -> str | None:
    """Return the supported language for a tag such as `th-TH` or `zh_TW`; None if unsupported."""
    language, *subtags = tag.strip().lower().replace("_", "-").split("-")
    if language == "zh":
        return "zh-Hant" if "hant" in subtags or _SIMPLIFIED.isdisjoint(subtags) else None
    language = _OLD_CODES.get(language, language)
    return language if language in LOCALES else None


def _preferred_tags(header: str) -> list[str]:
    """Return the tags of an `Accept-Language` header (RFC 9110, 12.5.4), most preferred first.

    Tags after `*` are ignored, because `*` accepts the merchant's language.
    """
    if len(header) > _HEADER_CHARS_MAX:  # the last tag may be incomplete
        header = header[:_HEADER_CHARS_MAX].rpartition(",")[0]
    ranges = [part.partition(";") for part in header.split(",")]
    weighted_tags = [(_weight(parameter.strip()), tag.strip()) for tag, _, parameter in ranges]
    weighted_tags.sort(key=lambda weighted_tag: -weighted_tag[0])  # stable for equal weights
    tags = [tag for weight, tag in weighted_tags if weight > 0]
    return list(takewhile(lambda tag: tag != "*", tags))


def _weight(parameter: str) -> float:
    """Parse a parameter such as `q=0.8`; a missing weight is 1, an invalid weight is 0."""
    if not parameter:
        return 1
    match = _WEIGHT.fullmatch(parameter)
    return float(match[1]) if match else 0


def _read_json(kind: str, locale: str) -> dict[str, Any]:
    file = resources.files("payintent") / "checkout" / "locales" / kind / f"{locale}.json"
    return json.loads(file.read_text(encoding="utf-8"))
