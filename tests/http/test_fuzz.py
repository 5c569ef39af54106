"""Every request of a merchant gets a valid response, and never an internal error."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from payintent.core.countries import COUNTRIES
from payintent.core.errors import ErrorCode
from payintent.core.money import CURRENCIES
from tests.support.arrange import BODY, post
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_ANY_TEXT = st.text(st.characters(), max_size=40)  # including surrogates and NUL
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
_AMOUNTS = st.from_regex(r"-?[0-9]{0,12}(\.[0-9]{0,20})?", fullmatch=True) | st.decimals().map(str)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "currency": st.sampled_from(sorted(CURRENCIES)) | _ANY_TEXT | _VALUES,
    "amount": _AMOUNTS | _ANY_TEXT | _VALUES,
    "payer_uid": _ANY_TEXT | _VALUES,
    "payer_email": st.emails() | _ANY_TEXT | _VALUES,
    "expires_in": st.integers(-1, 86_401) | _VALUES,
    "country": st.sampled_from(sorted(COUNTRIES)) | st.text(max_size=3) | _VALUES,
    "metadata": st.dictionaries(_ANY_TEXT, _VALUES, max_size=5) | _VALUES,
    "include_pegged_assets": st.booleans() | _VALUES,
    "return_url": _ANY_TEXT | _VALUES,
    "cancel_url": _ANY_TEXT.map(lambda text: f"https://shop.example.com/{text}") | _VALUES,
}
#: Valid bodies with a few changed fields, so that many reach the later checks.
_CHANGED_BODIES = st.fixed_dictionaries({}, optional=_FIELDS).map(lambda changes: BODY | changes)
_ENCODED = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode(
        errors="surrogatepass"
    ),
    _CHANGED_BODIES | _VALUES,
    st.booleans(),
)


@st.composite
def _corrupted_bodies(draw: st.DrawFn) -> bytes:
    """A valid body with inserted, removed or changed bytes."""
    body = bytearray(json.dumps(BODY | {"metadata": {"a": [1, "é\\u0000"]}}).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(body)


_BODIES = _ENCODED | _corrupted_bodies() | st.binary(max_size=200)


async def test_no_body_causes_an_internal_error(api: Api) -> None:
    loop = asyncio.get_running_loop()
    statuses: set[int] = set()

    @settings(
        max_examples=300,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(body=_BODIES)
    @example(body=json.dumps(BODY).encode())
    @example(body=json.dumps(BODY | {"amount": "-1"}).encode())
    @example(body=b"{")
    def check_response(body: bytes) -> None:
        # Hypothesis runs in a thread, and the service in this loop.
        answer = asyncio.run_coroutine_threadsafe(post(api, body), loop).result(20)
        statuses.add(answer.status)
        if answer.status == 201:
            asyncio.run_coroutine_threadsafe(_check_readable(api, answer), loop).result(20)
        else:
            assert answer.status in {400, 422}, answer.body
            assert set(answer.json) == {"code", "message"}
            assert answer.json["code"] in set(ErrorCode)

    await asyncio.to_thread(check_response)
    assert statuses == {201, 400, 422}


async def _check_readable(api: Api, created: Answer) -> None:
    """Check that the merchant and the buyer can read an accepted payment."""
    checkout_id = created.body.partition(b'"checkout_id":"')[2][:19].decode()
    payment_id = created.body.partition(b'"id":"')[2][:26].decode()
    assert (await api.get(payment_id)).status == 200
    assert (await api.send("GET", f"/v1/checkout/{checkout_id}")).status == 200
    assert (await api.send("GET", f"/c/{checkout_id}")).status == 200
