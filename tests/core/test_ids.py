"""External and internal ids, and API keys."""

import re
import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.core import access as api_key
from payintent.core import ids
from payintent.runtime.id_generator import IdGenerator, new_pay_uuid

_numbers = st.integers(min_value=0, max_value=2**128 - 1)


@given(_numbers, st.sampled_from(("pay", "sess", "rcpt", "case")))
def test_an_id_has_22_characters_and_can_be_parsed(number: int, prefix: str) -> None:
    text = ids.format_id(prefix, UUID(int=number))
    assert re.fullmatch(prefix + "_[0-9A-Za-z]{22}", text)
    assert ids.parse_id(prefix, text) == UUID(int=number)


@given(st.lists(_numbers, min_size=2, max_size=2, unique=True))
def test_external_ids_sort_like_internal_ids(numbers: list[int]) -> None:
    first, second = sorted(numbers)
    assert ids.format_id("pay", UUID(int=first)) < ids.format_id("pay", UUID(int=second))


@pytest.mark.parametrize(
    "raw",
    [
        *("", "pay_", "pay", "_", "0" * 22, "pay_" + "0" * 21, "pay_" + "0" * 23),
        *("sess_" + "0" * 22, "PAY_" + "0" * 22, "pay-" + "0" * 22, "pay__" + "0" * 21),
        *("pay_" + "0" * 21 + "!", "pay_" + "0" * 21 + "é", "pay_" + "0" * 21 + "٣"),
        *("pay_" + "0" * 22 + "\n", " pay_" + "0" * 22, "pay_" + "0" * 21 + "\x00"),
        *("pay_x_" + "0" * 22, "payx_" + "0" * 22),
    ],
)
def test_a_malformed_id_is_not_parsed(raw: str) -> None:
    assert ids.parse_id("pay", raw) is None


def test_an_id_beyond_128_bits_is_not_parsed() -> None:
    largest = ids.format_id("pay", UUID(int=2**128 - 1))
    assert ids.parse_id("pay", largest) is not None
    assert ids.parse_id("pay", "pay_" + ids.to_base62(2**128, 22)) is None
    assert ids.parse_id("pay", "pay_" + "z" * 22) is None


def test_a_checkout_id_has_16_characters() -> None:
    assert ids.is_checkout_id("cs_0123456789abcdEF")
    for wrong in (
        "cs_",
        "cs_" + "0" * 15,
        "cs_" + "0" * 17,
        "CS_" + "0" * 16,
        "cs_" + "0" * 15 + "-",
    ):
        assert not ids.is_checkout_id(wrong)
    assert not ids.is_checkout_id("cs_" + "0" * 16 + "\n")


def test_a_masked_checkout_id_shows_only_its_last_characters() -> None:
    assert ids.mask_checkout_id("cs_0123456789abcdef") == "cs_****cdef"


_times = st.integers(0, 2**48 - 1)


@given(_times, st.integers(0, 2**ids.TIMED_RANDOM_BITS - 1))
def test_a_timed_id_is_a_uuid7_with_its_time_and_random_bits(ms: int, random_bits: int) -> None:
    timed_id = ids.make_timed_id(ms, random_bits)
    assert (timed_id.version, timed_id.variant) == (7, "specified in RFC 4122")
    assert ids.get_unix_ms(timed_id) == ms
    assert (timed_id.int >> 64 & 0xFFF) << 62 | timed_id.int & (2**62 - 1) == random_bits


@given(_times, st.lists(st.integers(0, 2**ids.TIMED_RANDOM_BITS - 1), min_size=2, max_size=2))
def test_timed_ids_of_the_same_millisecond_sort_by_their_random_bits(
    ms: int, random: list[int]
) -> None:
    first, second = sorted(random)
    assert ids.make_timed_id(ms, first) <= ids.make_timed_id(ms, second)


def test_session_ids_and_on_chain_payment_ids_have_128_random_bits() -> None:
    generator = IdGenerator()
    for new_id in (generator.new_session_id, new_pay_uuid):
        values = [new_id().int for _ in range(200)]
        assert len(set(values)) == 200
        for bit in range(128):  # a random bit is constant with a probability of 2**-199
            assert len({value >> bit & 1 for value in values}) == 2


def test_the_generator_creates_unique_ids_of_every_kind() -> None:
    id_generator = IdGenerator(unix_ms=lambda: 1)
    assert id_generator.new_id() != id_generator.new_id()
    assert id_generator.new_id() < IdGenerator(unix_ms=lambda: 2).new_id()
    assert ids.is_checkout_id(id_generator.new_checkout_id())
    assert id_generator.new_checkout_id() != id_generator.new_checkout_id()
    assert id_generator.new_session_id() != id_generator.new_session_id()


KEY = api_key.make_api_key(api_key.MERCHANT, "Abcd1234", "s" * 43)


def test_an_api_key_has_the_documented_format_and_ends_with_a_checksum() -> None:
    assert re.fullmatch(r"sk_live_Abcd1234_s{43}[0-9A-Za-z]{6}", KEY.text)
    assert KEY.text[-6:] == ids.to_base62(zlib.crc32(KEY.text[:-6].encode()), 6)
    assert api_key.parse_api_key(api_key.MERCHANT, KEY.text) == KEY


def test_a_key_with_one_changed_character_is_rejected() -> None:
    for position, char in enumerate(KEY.text):
        replacement = "x" if char != "x" else "y"
        changed = KEY.text[:position] + replacement + KEY.text[position + 1 :]
        assert api_key.parse_api_key(api_key.MERCHANT, changed) is None, position


@pytest.mark.parametrize(
    "text", ["", KEY.text[:-1], KEY.text + "0", KEY.text + "\n", f" {KEY.text}"]
)
def test_a_malformed_key_is_rejected(text: str) -> None:
    assert api_key.parse_api_key(api_key.MERCHANT, text) is None


def test_an_operator_or_test_key_is_not_a_merchant_key() -> None:
    for prefix in (api_key.OPERATOR, "sk_test"):
        key = api_key.make_api_key(prefix, "Abcd1234", "s" * 43)
        assert api_key.parse_api_key(prefix, key.text) == key
        assert api_key.parse_api_key(api_key.MERCHANT, key.text) is None


@pytest.mark.parametrize(
    "clock", [[5] * 1000, [5, 5, 3, 1, 5, 6, 2], [9, 8, 7]], ids=["still", "back", "falling"]
)
def test_ids_increase_even_if_the_clock_goes_backwards(clock: list[int]) -> None:
    ticks = iter(clock)
    generator = IdGenerator(unix_ms=lambda: next(ticks))
    ids_in_order = [generator.new_id() for _ in clock]
    assert ids_in_order == sorted(set(ids_in_order))


def test_if_a_millisecond_is_exhausted_ids_continue_in_the_next_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: (1 << bits) - 1)
    generator = IdGenerator(unix_ms=lambda: 7)
    first, second = generator.new_id(), generator.new_id()
    assert (first.int >> 80, second.int >> 80) == (7, 8)
    assert first < second
