"""The checkout's languages are complete and consistent, and each buyer gets the right language."""

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.checkout.languages import load_language, negotiate_language
from payintent.core.countries import COUNTRIES, GLOBAL
from payintent.core.languages import LOCALES, OWN_NAMES
from payintent.core.money import FIAT
from payintent.merchants.methods_operations import AddPaymentMethod
from tests.checkout import texts_used as used
from tools import cldr

pytestmark = pytest.mark.full

FOREIGN = [locale for locale in LOCALES if locale != "en"]
#: Texts that are identical to the English text.
IDENTICAL = {
    "th": {"quantity", "sentences", "receipt_line", "method_provider"},
    "ja": {"quantity"},
    "zh-Hant": {"quantity"},
    "id": {
        *("quantity", "sentences", "total", "receipt_email", "receipt_line", "method_provider"),
        "group_bank",
    },
    "ar": {"sentences"},
}
#: Names and words that are written in Latin letters in every script.
LATIN = {"JavaScript", "MetaMask", "App", "QR", "Code", "EIP", "D", "Secure", "CVC"}
#: Prefixes of keys that the code composes from a method's kind or an error.
COMPUTED = ("kind_", "sorry_", "card_", "test_card_")
OPEN, CLOSE = "\u2068", "\u2069"  # isolate the direction of the text between them

every_locale = pytest.mark.parametrize("locale", LOCALES)
every_foreign = pytest.mark.parametrize("locale", FOREIGN)


def _placeholders(text: str) -> list[str]:
    return sorted(re.findall(r"\{(\w+)\}", text))


def _fill_placeholders(text: str) -> str:
    return re.sub(r"\{\w+\}", "1", text)


@every_locale
def test_every_language_has_the_texts_of_the_english_file_in_the_same_order(locale: str) -> None:
    folder = Path(cldr.FOLDER).parent / "texts"
    pairs = json.loads(
        (folder / f"{locale}.json").read_text(), object_pairs_hook=lambda pairs: pairs
    )
    assert [key for key, _ in pairs] == list(load_language("en").translations)


@every_foreign
def test_a_text_has_the_same_placeholders_in_every_language(locale: str) -> None:
    for key, english in load_language("en").translations.items():
        assert _placeholders(load_language(locale).translations[key]) == _placeholders(english), key


@every_locale
def test_every_placeholder_is_filled(locale: str) -> None:
    for key, text in load_language(locale).translations.items():
        rendered = load_language(locale).t(key, **dict.fromkeys(_placeholders(text), "value"))
        assert rendered.strip() == rendered != "", key
        assert not set("{}") & set(rendered), key
        assert rendered.count("value") == len(_placeholders(text)), key


@every_foreign
def test_every_text_is_translated_unless_it_is_listed_as_identical(locale: str) -> None:
    english, translations = load_language("en").translations, load_language(locale).translations
    assert {key for key in translations if translations[key] == english[key]} == IDENTICAL[locale]


@every_foreign
def test_a_text_uses_the_script_of_its_language(locale: str) -> None:
    encoding = {"ja": "cp932", "zh-Hant": "big5hkscs", "th": "cp874", "id": "cp1252"}.get(locale)
    for key, text in load_language(locale).translations.items():
        if locale != "id":
            assert set(re.findall(r"[A-Za-z]+", _fill_placeholders(text))) <= LATIN, key
        if encoding:  # fails if a character belongs to another script or is simplified Chinese
            _fill_placeholders(text).replace("×", "").encode(encoding)


@every_locale
def test_a_text_follows_the_punctuation_rules_of_its_language(locale: str) -> None:
    mistakes = {
        "ja": r"[.,:;?!()\"]|\s[\u3000-\u303f\uff00-\uff65]|[\u3001\u3002]\s",
        "zh-Hant": r"[.,:;?!()\"]|\s[\u3000-\u303f\uff00-\uff65]|[\u3001\u3002]\s",
        "ar": r"[,;?']|\s[\u060c\u061b\u061f.:]",
    }.get(locale, r"['\"]|\s[.,:;?!]")
    for key, text in load_language(locale).translations.items():
        assert not re.search(mistakes, _fill_placeholders(text)), key
        assert "..." not in text, key
        assert "  " not in text, key


def test_values_in_arabic_texts_keep_their_own_direction() -> None:
    inside = {"first", "second", "when", "minutes", "quantity", "name"}  # Arabic words or numbers
    for key, text in load_language("ar").translations.items():
        isolated = re.findall(rf"{OPEN}\{{(\w+)\}}{CLOSE}", text)
        assert sorted({*isolated} | inside & {*_placeholders(text)}) == _placeholders(text), key
        assert text.count(OPEN) == text.count(CLOSE) == len(isolated), key
        assert not re.search(r"\d-[A-Z]", text), key  # would be displayed as `D-3`


def test_arabic_numbers_follow_the_noun_to_avoid_inflection() -> None:
    for text in load_language("ar").translations.values():
        assert not re.search(r"\{minutes\} د", text)


def test_only_arabic_is_right_to_left() -> None:
    assert [locale for locale in LOCALES if load_language(locale).direction == "rtl"] == ["ar"]
    assert list(OWN_NAMES) == list(LOCALES)


def test_every_used_text_exists_and_gets_its_values() -> None:
    calls = used.text_calls()
    assert len(calls) > 100
    for file_name, key, value_names in calls:
        assert key in load_language("en").translations, (file_name, key)
        if value_names is not None:
            assert sorted(value_names) == _placeholders(load_language("en").translations[key]), (
                file_name,
                key,
            )


def test_every_text_is_used() -> None:
    mentioned = used.possible_keys()
    unused = {
        key for key in load_language("en").translations if not key.startswith(COMPUTED)
    } - mentioned
    assert unused == set()
    kinds = get_args(get_type_hints(AddPaymentMethod)["kind"])
    in_texts = {key for key in load_language("en").translations if key.startswith("kind_")}
    assert in_texts == {f"kind_{kind}" for kind in kinds}


def test_templates_and_scripts_contain_no_literal_words() -> None:
    assert used.words_in_templates() <= {"UTC", "approve", "fail"}  # UTC, and the values of buttons
    assert used.words_in_scripts() == set()


@every_locale
def test_names_and_separators_match_cldr(locale: str) -> None:
    assert (cldr.FOLDER / f"{locale}.json").read_text() == cldr.text(locale)


@every_locale
def test_countries_are_sorted_by_name_and_global_comes_last(locale: str) -> None:
    countries = load_language(locale).countries
    assert set(countries) == set(COUNTRIES)
    assert list(countries.items())[-1] == (GLOBAL, "Global")
    assert set(load_language(locale).currencies) == set(FIAT)
    if locale in {"en", "id"}:
        assert list(countries.values())[:-1] == sorted(list(countries.values())[:-1])


def test_countries_are_sorted_by_the_collation_of_the_language() -> None:
    for locale, names in {
        "ja": ["台湾", "チリ", "ドミニカ共和国", "日本", "ニュージーランド"],
        "th": ["เนเธอร์แลนด์", "บราซิล", "เบลเยียม", "ปานามา"],
        "zh-Hant": ["日本", "加拿大", "台灣", "美國", "澳洲"],
    }.items():
        countries = list(load_language(locale).countries.values())
        assert sorted(names, key=countries.index) == names


@pytest.mark.parametrize(
    ("locale", "plain", "formatted"),
    [
        ("en", "0", "0"),
        ("en", "999.90", "999.90"),
        ("en", "1590.00", "1,590.00"),
        ("ja", "1234567", "1,234,567"),
        ("th", "1234567.5", "1,234,567.5"),
        ("zh-Hant", "1000", "1,000"),
        ("id", "1590.00", "1.590,00"),
        ("id", "0.000000000000000001", "0,000000000000000001"),
        ("ar", "1590.00", "1,590.00"),
        ("id", "99999999999999999999.999", "99.999.999.999.999.999.999,999"),
    ],
)
def test_a_number_is_formatted_with_the_separators_of_the_language(
    locale: str, plain: str, formatted: str
) -> None:
    assert load_language(locale).number(plain) == formatted
    assert load_language(locale).money(plain, "THB") == f"{formatted}\u00a0THB"


@examples(deadline=None)
@given(
    locale=st.sampled_from(LOCALES),
    whole=st.integers(0, 10**30),
    fraction=st.text("0123456789", max_size=18),
)
def test_formatting_a_number_preserves_every_digit(locale: str, whole: int, fraction: str) -> None:
    language = load_language(locale)
    plain = f"{whole}.{fraction}" if fraction else str(whole)
    assert (
        language.number(plain).replace(language.group, "").replace(language.decimal, ".") == plain
    )


@pytest.mark.parametrize(
    ("accepted", "locale"),
    [
        ("", "th"),
        ("ja", "ja"),
        ("ja-JP,ja;q=0.9,en-US;q=0.8,en;q=0.7", "ja"),
        ("EN-gb", "en"),
        ("fr, en;q=0.3, ar;q=0.7", "ar"),
        ("fr;q=1.0, de;q=0.9", "th"),
        ("id;q=0.5,ja;q=0.5", "id"),
        ("in-ID", "id"),
        ("zh-TW", "zh-Hant"),
        ("zh-HK", "zh-Hant"),
        ("zh_MO", "zh-Hant"),
        ("zh-Hant-CN", "zh-Hant"),
        ("zh", "zh-Hant"),
        ("zh-CN", "th"),
        ("zh-Hans", "th"),
        ("zh-Hans-HK, en;q=0.5", "en"),
        ("zh-SG, ja;q=0.1", "ja"),
        ("zh-CN, zh;q=0.9, en;q=0.8", "zh-Hant"),
        ("*", "th"),
        ("*;q=0.5, ja;q=0.7", "ja"),
        ("ja;q=0.5, *", "th"),
        ("*;q=0, ja;q=0.1", "ja"),
        ("ja;q=0", "th"),
        ("ja;q=0.000, en;q=0.001", "en"),
        ("ja; q=0.8 , ar ; Q=0.9", "ar"),
        ("ja;q=nan, ar;q=inf, id;q=1e0, en;q=-1, zh;q=1.5", "th"),
        ("ja;q=\u0661", "th"),
        ("ja;level=1", "th"),
        (",,; ;q=1,;;, -,_,ja", "ja"),
        ("english, japanese, jaa, x-ja, i-ja", "th"),
        ("x," * 249 + "ja", "ja"),
        ("x," * 250 + "ja", "th"),
        ("x" * 493 + ",zh-Hans", "th"),
    ],
)
def test_the_supported_language_with_the_highest_preference_is_chosen(
    accepted: str, locale: str
) -> None:
    assert negotiate_language(None, accepted, "th") == locale


@pytest.mark.parametrize(
    ("requested", "accepted", "fallback", "locale"),
    [
        ("ar", "ja", "th", "ar"),
        ("zh_TW", "ja", "th", "zh-Hant"),
        ("zh-CN", "ja", "th", "ja"),
        ("tlh", "ja", "th", "ja"),
        ("*", "ja", "th", "ja"),
        ("", "", "id-ID", "id"),
        (None, "", "fr", "en"),
        (None, "zh-CN", "", "en"),
        ("a-" * 10**6, "-" * 10**6, "_" * 10**6, "en"),
    ],
)
def test_the_query_takes_precedence_over_the_browser_the_shop_and_english(
    requested: str | None, accepted: str, fallback: str, locale: str
) -> None:
    assert negotiate_language(requested, accepted, fallback) == locale


_arbitrary_headers = (
    st.text() | st.text("ajthzenidq=01.;,-_* \t") | st.from_regex(r"(zh|ja)(-\w+)*(;q=.*)?")
)


@examples(deadline=None)
@given(
    requested=st.none() | _arbitrary_headers,
    accepted=_arbitrary_headers,
    fallback=_arbitrary_headers,
)
def test_any_input_results_in_a_supported_language(
    requested: str | None, accepted: str, fallback: str
) -> None:
    assert negotiate_language(requested, accepted, fallback) in LOCALES
