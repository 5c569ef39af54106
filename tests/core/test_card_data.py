"""Stored callbacks do not contain card data, and are otherwise unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.core.texts import mask_card_data


@pytest.mark.parametrize(
    ("body", "masked"),
    [
        (b'{"cardNo":"4111111111111111"}', b'{"cardNo":"411111******1111"}'),
        (b"pan=4111 1111 1111 1111&x=1", b"pan=411111******1111&x=1"),
        (b"5105-1051-0510-5100", b"510510******5100"),
        (b"378282246310005", b"378282*****0005"),
        (b'{"exp_month": 12,"exp_year":2030}', b'{"exp_month": "***","exp_year":"***"}'),
        (b'{"cardToken":"a\\"b","x":1}', b'{"cardToken":"***","x":1}'),
        (b'{"CVV":"123"}', b'{"CVV":"***"}'),
        (b"a=1&cvc=123&b=2", b"a=1&cvc=***&b=2"),
        (b'{"client_secret":"pi_1_secret_2"}', b'{"client_secret":"***"}'),
    ],
)
def test_card_data_is_masked(body: bytes, masked: bytes) -> None:
    assert mask_card_data(body) == masked


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"raw body",
        b'{"accountNo":"411111XXXXXX1111","amount":"000000001590.00000"}',
        b'{"id":"evt_1","amount":159000,"created":1763700000}',
        b"MerchantTradeNo=0123456789abcdef0123&card4no=1111&card6no=411111",
        b"4111111111111112",  # the check digit is invalid
        b"41111111111111111111",  # longer than any card number
        b"\xff\x00\xfe",
    ],
)
def test_other_data_is_unchanged(text: bytes) -> None:
    assert mask_card_data(text) == text


@given(text=st.binary())
def test_masking_is_idempotent(text: bytes) -> None:
    masked = mask_card_data(text)
    assert mask_card_data(masked) == masked
