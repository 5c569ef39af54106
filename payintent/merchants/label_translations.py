"""Translations of a payment method's label, which operators enter as `th:บัตรเครดิต`."""

from collections.abc import Iterable, Mapping

from payintent.core.errors import BadRequestError
from payintent.core.languages import LOCALES
from payintent.operators.fields import check_name, quote_input

_FIELD = "label_translations"


def parse_translations(entries: Iterable[str]) -> dict[str, str]:
    """Parse entries such as `th:บัตรเครดิต`, at most one per language of the checkout."""
    translations: dict[str, str] = {}
    for entry in entries:
        language, _, label = entry.partition(":")
        if language not in LOCALES:
            raise BadRequestError(
                f"{_FIELD} must be LANGUAGE:LABEL with a language of {', '.join(LOCALES)}, "
                f"not {quote_input(entry)}"
            )
        if language in translations:
            raise BadRequestError(f"{_FIELD} must have at most one entry for {language}")
        check_name(f"{_FIELD} for {language}", label)
        translations[language] = label
    return translations


def format_translations(translations: Mapping[str, str]) -> list[str]:
    return sorted(f"{language}:{label}" for language, label in translations.items())
