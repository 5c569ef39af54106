"""Names of things, outside and inside, and API keys."""

import re
import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.domain import api_key, ids
from payintent.id_generator import IdGenerator, new_pay_uuid

_numbers = st.integers(min_value=0, max_value=2**128 - 1)


@given(_numbers, st.sampled_from(("pay", "sess", "rcpt", "case")))
def test_an_id_has_22_characters_and_reads_back(number: int, prefix: str) -> None:
    text = ids.format_id(prefix, UUID(int=number))
    assert re.fullmatch(prefix + "_[0-9A-Za-z]{22}", text)
    assert ids.parse_id(prefix, text) == UUID(int=number)


@given(st.lists(_numbers, min_size=2, max_size=2, unique=True))
def test_ids_sort_outside_as_they_do_inside(numbers: list[int]) -> None:
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
def test_a_malformed_id_is_nobodys(raw: str) -> None:
    assert ids.parse_id("pay", raw) is None


def test_an_id_beyond_128_bits_is_nobodys() -> None:
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


def test_a_masked_checkout_id_is_no_capability() -> None:
    assert ids.mask_checkout_id("cs_0123456789abcdef") == "cs_****cdef"


_cells = st.integers(0, ids.CELL_MAX)
#: Ids from before cells: a UUIDv7, and 128 random bits.
_uuid7s = st.builds(
    lambda ms, high, low: UUID(int=ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**12 - 1),
    st.integers(0, 2**62 - 1),
)


@given(st.integers(0, 2**48 - 1), _cells, st.integers(0, 2**ids.TIMED_RANDOM_BITS - 1))
def test_a_timed_id_is_a_uuid_by_the_rfc_and_carries_time_cell_and_chance(
    ms: int, cell: int, chance: int
) -> None:
    made = ids.make_timed_id(ms, cell, chance)
    assert (made.version, made.variant) == (8, "specified in RFC 4122")
    assert made.int >> 80 == ms
    assert ids.cell_of_timed(made) == cell
    assert (made.int >> 64 & 0b11) << 62 | made.int & (2**62 - 1) == chance
    assert ids.cell_of_timed(ids.parse_id("pay", ids.format_id("pay", made)) or made) == cell


@given(_cells, st.integers(0, 2**ids.OPAQUE_RANDOM_BITS - 1))
def test_an_opaque_id_carries_cell_and_chance(cell: int, chance: int) -> None:
    made = ids.make_opaque_id(cell, chance)
    assert ids.cell_of_opaque(made) == cell
    assert made.int >> 128 - ids.OPAQUE_RANDOM_BITS == chance


@given(_uuid7s)
def test_a_timed_id_from_before_cells_is_in_cell_0(old: UUID) -> None:
    assert old.version == 7
    assert ids.cell_of_timed(old) == 0


@given(_numbers)
def test_an_opaque_id_from_before_cells_is_in_cell_0(number: int) -> None:
    """Its bits are chance: here no run of Hypothesis meets the mark, one in 268 million does."""
    assert ids.cell_of_opaque(UUID(int=number)) == 0


@given(_uuid7s, _cells)
def test_a_later_id_sorts_after_those_from_before_cells(old: UUID, cell: int) -> None:
    assert ids.make_timed_id((old.int >> 80) + 1, cell, 0) > old or old.int >> 80 == 2**48 - 1


def test_every_new_id_names_the_cell_of_its_generator() -> None:
    generator = IdGenerator(cell=5)
    assert ids.cell_of_timed(generator.new_id()) == 5
    session_id = generator.new_session_id()
    assert ids.cell_of_opaque(session_id) == 5
    assert ids.cell_of_opaque(new_pay_uuid(session_id)) == 5
    assert new_pay_uuid(session_id).int >> 38 != session_id.int >> 38
    assert ids.cell_of_timed(IdGenerator().new_id()) == 0


@pytest.mark.parametrize("cell", [-1, ids.CELL_MAX + 1])
def test_a_cell_has_ten_bits(cell: int) -> None:
    with pytest.raises(ValueError, match="a cell is a number from 0 to 1023"):
        IdGenerator(cell=cell)


def test_the_mint_makes_new_names_in_the_form_they_need() -> None:
    id_generator = IdGenerator(unix_ms=lambda: 1)
    assert id_generator.new_id() != id_generator.new_id()
    assert id_generator.new_id() < IdGenerator(unix_ms=lambda: 2).new_id()
    assert ids.is_checkout_id(id_generator.new_checkout_id())
    assert id_generator.new_checkout_id() != id_generator.new_checkout_id()
    assert id_generator.new_session_id() != id_generator.new_session_id()


KEY = api_key.make_api_key(api_key.MERCHANT, "Abcd1234", "s" * 43)


def test_an_api_key_has_the_documented_form_and_a_crc_of_what_stands_before() -> None:
    assert re.fullmatch(r"sk_live_Abcd1234_s{43}[0-9A-Za-z]{6}", KEY.text)
    assert KEY.text[-6:] == ids.to_base62(zlib.crc32(KEY.text[:-6].encode()), 6)
    assert api_key.parse_api_key(api_key.MERCHANT, KEY.text) == KEY


def test_no_single_changed_character_passes_for_a_key() -> None:
    for place, char in enumerate(KEY.text):
        other = "x" if char != "x" else "y"
        changed = KEY.text[:place] + other + KEY.text[place + 1 :]
        assert api_key.parse_api_key(api_key.MERCHANT, changed) is None, place


@pytest.mark.parametrize(
    "text", ["", KEY.text[:-1], KEY.text + "0", KEY.text + "\n", f" {KEY.text}"]
)
def test_a_text_of_another_form_is_no_key(text: str) -> None:
    assert api_key.parse_api_key(api_key.MERCHANT, text) is None


def test_a_key_of_another_kind_is_no_merchants() -> None:
    for prefix in (api_key.OPERATOR, "sk_test"):
        other = api_key.make_api_key(prefix, "Abcd1234", "s" * 43)
        assert api_key.parse_api_key(prefix, other.text) == other
        assert api_key.parse_api_key(api_key.MERCHANT, other.text) is None


@pytest.mark.parametrize(
    "clock", [[5] * 1000, [5, 5, 3, 1, 5, 6, 2], [9, 8, 7]], ids=["still", "back", "falling"]
)
def test_an_id_is_above_those_made_before_it_whatever_the_clock_does(clock: list[int]) -> None:
    ticks = iter(clock)
    generator = IdGenerator(unix_ms=lambda: next(ticks), cell=3)
    made = [generator.new_id() for _ in clock]
    assert made == sorted(set(made))
    assert {ids.cell_of_timed(one) for one in made} == {3}


def test_a_millisecond_whose_ids_are_used_up_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: (1 << bits) - 1)
    generator = IdGenerator(unix_ms=lambda: 7)
    first, second = generator.new_id(), generator.new_id()
    assert (first.int >> 80, second.int >> 80) == (7, 8)
    assert first < second
