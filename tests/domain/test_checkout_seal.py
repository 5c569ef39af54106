"""Checkout ids that seal their cell."""

import secrets

import pytest

from payintent.domain import ids
from payintent.domain.checkout_seal import DRAWN_END, CheckoutSeal
from payintent.id_generator import IdGenerator

_SEAL = CheckoutSeal(b"a key")


@pytest.mark.parametrize("cell", [0, 1, 7, 512, ids.CELL_MAX])
@pytest.mark.parametrize("drawn", [0, 1, DRAWN_END // 3, DRAWN_END - 1])
def test_a_checkout_id_gives_back_the_cell_that_was_sealed_in_it(cell: int, drawn: int) -> None:
    checkout_id = _SEAL.seal(cell, drawn)
    assert ids.is_checkout_id(checkout_id)
    assert _SEAL.cell_of(checkout_id) == cell


def test_what_is_drawn_has_85_bits_and_all_of_it_fits_into_the_text() -> None:
    assert DRAWN_END > 2**85
    highest = ids.from_base62(_SEAL.seal(0, DRAWN_END - 1)[3:])
    assert highest >> ids.CELL_BITS == DRAWN_END - 1


def test_ids_of_one_draw_differ_by_their_cells() -> None:
    drawn = secrets.randbelow(DRAWN_END)
    assert len({_SEAL.seal(cell, drawn) for cell in range(ids.CELL_MAX + 1)}) == 1024


def test_without_the_key_the_bits_of_one_cell_are_any() -> None:
    sealed = [_SEAL.seal(1, drawn) for drawn in range(20_000)]
    low = {ids.from_base62(one[3:]) & ids.CELL_MAX for one in sealed}
    assert low == set(range(ids.CELL_MAX + 1))
    other = CheckoutSeal(b"another key")
    assert {other.cell_of(one) for one in sealed} == low


def test_any_id_of_before_decodes_to_some_cell() -> None:
    for checkout_id in (
        "cs_0000000000000000",
        "cs_zzzzzzzzzzzzzzzz",
        IdGenerator().new_checkout_id(),
    ):
        assert 0 <= _SEAL.cell_of(checkout_id) <= ids.CELL_MAX


def test_a_generator_seals_its_cell_where_it_has_the_seal() -> None:
    generator = IdGenerator(cell=9)
    generator.checkout_seal = _SEAL
    assert {_SEAL.cell_of(generator.new_checkout_id()) for _ in range(100)} == {9}
    assert len({_SEAL.cell_of(IdGenerator(cell=9).new_checkout_id()) for _ in range(100)}) > 1
