"""Ids, checkout ids and cursors from earlier releases are valid, and sort before new ones.

Earlier releases used UUIDv8 with a 10-bit database number after the time, and appended a mark and
this number to session ids. The samples are from databases 0, 7 and 1023.
"""

from uuid import UUID

import pytest

from payintent.core import ids
from payintent.http.pagination import read_id_cursor
from payintent.runtime.id_generator import IdGenerator
from payintent.webhooks.feed_store import FeedCursor
from payintent.webhooks.routes import read_feed_cursor, write_feed_cursor

#: Ids in creation order, each with its time in Unix milliseconds.
_TIMED = [
    ("pay_0355YBDPEhGunQljeP9DRD", "01a2234a-f260-8002-b69c-230068ba74d3", 1795888444000),
    ("pay_0355YBDPKjyOkr1mKyrcX3", "01a2234a-f261-8000-94bc-c110d6ce15b1", 1795888444001),
    ("pay_0355YBDPKjyOkr22k9kQqz", "01a2234a-f261-8000-94bc-c1e9ce760f1d", 1795888444001),
    ("pay_0355YBDPv0Qr1OsSah9oX5", "01a2234a-f267-801f-abd1-903b120aedb3", 1795888444007),
    ("pay_0355YBEyiSnJUronhu4bBs", "01a2234a-f648-8000-bdcd-d47ada8774b4", 1795888445000),
    ("pay_0355YBF0xqc75BCWEO97Mh", "01a2234a-f65f-8ffe-b9e3-2b769a485013", 1795888445023),
]
_SESSIONS = [
    ("sess_1hdZaap7PxSXIfel3cdFY0", "37fba1bd-4d61-1d96-08ca-b3e70f946c00"),
    ("sess_5vZ4Y4ekbyoOc6kV0CmdYl", "c2ca8abf-6fe6-3aa0-e929-aa270f946c07"),
    ("sess_4CKDtwt0thXhE7Xbkn1f1L", "89f5adb8-ebf8-c285-3184-f7e70f946fff"),
]
_CHECKOUT_IDS = [
    *("cs_xW9fwBbZcGkxpeVg", "cs_pVECtcYYTh8AJ41X"),  # random, or an encrypted number
    *("cs_gDLwdyCNcaK22bif", "cs_ZqkOQRSmSctqMauZ", "cs_PNxtIJGSaP5jIq2F"),
]
_FEED_CURSORS = [
    ("AAAAAAAAACkBoiNK8mCAAracIwBounTT", 41, "01a2234a-f260-8002-b69c-230068ba74d3"),
    ("AAAAAAAAADABoiNK8meAH6vRkDsSCu2z", 48, "01a2234a-f267-801f-abd1-903b120aedb3"),
    ("AAAAAAAABCgBoiNK9l-P_rnjK3aaSFAT", 1064, "01a2234a-f65f-8ffe-b9e3-2b769a485013"),
]


@pytest.mark.parametrize(("text", "value", "unix_ms"), _TIMED)
def test_an_id_from_an_earlier_release_is_valid_and_contains_its_time(
    text: str, value: str, unix_ms: int
) -> None:
    parsed = ids.parse_id(ids.PAYMENT, text)
    assert parsed == UUID(value)
    assert ids.format_id(ids.PAYMENT, parsed) == text
    assert ids.get_unix_ms(parsed) == unix_ms


def test_ids_from_earlier_releases_sort_by_time_and_before_new_ids() -> None:
    texts, values = [text for text, _, _ in _TIMED], [UUID(value) for _, value, _ in _TIMED]
    assert texts == sorted(texts)
    assert values == sorted(values)
    new = IdGenerator(unix_ms=lambda: _TIMED[-1][2] + 1).new_id()
    assert new > values[-1]
    assert ids.format_id(ids.PAYMENT, new) > texts[-1]


def test_a_new_id_sorts_among_ids_from_earlier_releases_by_its_time() -> None:
    new = IdGenerator(unix_ms=lambda: 1795888444500).new_id()
    assert UUID(_TIMED[3][1]) < new < UUID(_TIMED[4][1])


@pytest.mark.parametrize(("text", "value"), _SESSIONS)
def test_a_session_id_from_an_earlier_release_is_valid(text: str, value: str) -> None:
    parsed = ids.parse_id(ids.SESSION, text)
    assert parsed == UUID(value)
    assert ids.format_id(ids.SESSION, parsed) == text


@pytest.mark.parametrize("text", _CHECKOUT_IDS)
def test_a_checkout_id_from_an_earlier_release_is_valid(text: str) -> None:
    assert ids.is_checkout_id(text)


@pytest.mark.parametrize(("text", "number", "event_id"), _FEED_CURSORS)
def test_a_feed_cursor_from_an_earlier_release_is_parsed_and_formatted_unchanged(
    text: str, number: int, event_id: str
) -> None:
    position = FeedCursor(number, UUID(event_id))
    assert read_feed_cursor(text) == position
    assert write_feed_cursor(position) == text


def test_a_list_cursor_from_an_earlier_release_is_parsed() -> None:
    assert read_id_cursor("AaIjSvJhgACUvMEQ1s4VsQ==") == UUID(_TIMED[1][1])
