"""The decoder of creation requests preserves metadata even if it contains escape sequences."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.payments.schemas import CREATE_DECODER

_PIECES = st.sampled_from(
    [
        *("\\ud83d", "\\uDBFF", "\\ude00", "\\uDC00", "\\u0041", "\\uD7FF", "\\ue000"),
        *("\\\\", '\\"', "\\n", "\\/", "u", "d83d", "~", "é", "\U0001f600"),
    ]
)
_TEXTS = st.lists(_PIECES, max_size=12).map("".join)
_REQUIRED_FIELDS = '"currency":"THB","amount":"1","payer_uid":"u"'


@given(name=_TEXTS, text=_TEXTS)
def test_metadata_is_preserved_with_any_escape_sequences(name: str, text: str) -> None:
    metadata = f'{{"{name}":["{text}"]}}'
    body = CREATE_DECODER.decode(f'{{{_REQUIRED_FIELDS},"metadata":{metadata}}}'.encode())
    assert bytes(body.metadata).decode() == metadata


@given(text=_TEXTS)
def test_other_fields_are_decoded_strictly(text: str) -> None:
    document = f'{{{_REQUIRED_FIELDS},"country":"{text}","metadata":{{"a":"\\ud83d"}}}}'.encode()
    try:
        country = msgspec.json.decode(f'"{text}"'.encode())
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            CREATE_DECODER.decode(document)
    else:
        assert CREATE_DECODER.decode(document).country == country
