"""Statements: in which series one is, and what its lines are about."""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.statement import series_of, words_of
from payintent.id_generator import IdGenerator

_IN_2 = ids.format_id(ids.STATEMENT, IdGenerator(cell=2).new_id())
_IN_0 = ids.format_id(ids.STATEMENT, IdGenerator(cell=0).new_id())
_OF_BEFORE = ids.format_id(ids.STATEMENT, UUID(int=7 << 76 | 7))  # ids named no cell


def test_a_statement_is_in_the_series_of_its_cell() -> None:
    assert [series_of(one) for one in (_IN_2, _IN_0, _OF_BEFORE)] == [2, 0, 0]


def test_what_is_carried_between_cells_says_from_which_side_it_is_seen() -> None:
    carried = str(IdGenerator(cell=2).new_id())  # by the former cell
    seen = [words_of(one, "cell_transfer", carried) for one in (_IN_2, _IN_0, _OF_BEFORE)]
    assert seen == ["to another series", "from another series", "from another series"]
    assert words_of(_IN_0, "refund_reserved", carried) == "refund reserved"
