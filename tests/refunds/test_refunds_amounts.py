"""Refund amounts: all formats, partial amounts, currencies and tokens."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.gateways.port import (
    GatewayCapabilities,
    GatewayRefundState,
    RefundReport,
    RefundSupport,
)
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.refunds.requests import (
    create_paid,
    get_refund,
    post_raw_refund,
    post_refund,
    process_refunds,
    read_capture,
    read_stored_refunds,
)
from tests.support.arrange import payment_of, refusal, select
from tests.support.contracts import PAYER, contract_service, log_of, offer_tokens, record_final_logs
from tests.support.fakes import FakeGateway
from tests.support.world import Answer, Api

_MALFORMED = (400, "INVALID_AMOUNT")
_REFUSED = (422, "INVALID_AMOUNT")
_UNPROCESSABLE = (422, "UNPROCESSABLE")
_TOO_MUCH = (409, "REFUND_EXCEEDS_REMAINING")

_SPELLINGS: dict[str, tuple[int, str]] = {
    '""': _MALFORMED,
    '"00"': _MALFORMED,
    '"00.00"': _MALFORMED,
    '"01"': _MALFORMED,
    '"."': _MALFORMED,
    '"0."': _MALFORMED,
    '"0..0"': _MALFORMED,
    '".5"': _MALFORMED,
    '"1e2"': _MALFORMED,
    '"+1"': _MALFORMED,
    '" 1"': _MALFORMED,
    '"1 "': _MALFORMED,
    '"1\\n"': _MALFORMED,
    '"1,00"': _MALFORMED,
    '"1_0"': _MALFORMED,
    '"0x1"': _MALFORMED,
    '"NaN"': _MALFORMED,
    '"Infinity"': _MALFORMED,
    '"١"': _MALFORMED,
    '"１"': _MALFORMED,
    '"1\\u0000"': _MALFORMED,
    '"\\ud800"': (400, "BAD_REQUEST"),  # not valid Unicode
    "1": _MALFORMED,
    "1.00": _MALFORMED,
    "0": _MALFORMED,
    "null": _MALFORMED,
    "true": _MALFORMED,
    '["1.00"]': _MALFORMED,
    '{"value":"1.00"}': _MALFORMED,
    '"0"': _REFUSED,
    '"0.0"': _REFUSED,
    '"0.000"': _REFUSED,
    '"-0"': _REFUSED,
    '"-0.00"': _REFUSED,
    '"-1"': _REFUSED,
    '"-0.001"': _REFUSED,
    '"1.001"': _REFUSED,
    '"1.000"': _REFUSED,
    '"0.001"': _REFUSED,
    '"9999999999999.999"': _REFUSED,
    '"1590.01"': _TOO_MUCH,
    '"1591"': _TOO_MUCH,
    f'"{"9" * 40_000}"': _TOO_MUCH,
}


async def test_invalid_and_excessive_amounts_are_refused(api: Api) -> None:
    created = await create_paid(api)
    for spelling, expected in _SPELLINGS.items():
        answer = await post_raw_refund(api, created, f'{{"amount":{spelling}}}')
        assert refusal(answer) == expected, spelling[:40]
    assert await read_stored_refunds(api.world) == []


@pytest.mark.parametrize("spelling", ["1590", "1590.0", "1590.00", "0.01", "1.5"])
async def test_an_amount_is_returned_exactly_as_sent(api: Api, spelling: str) -> None:
    refund = await post_refund(api, await create_paid(api), amount=spelling)
    assert (refund.status, refund.json["amount"]) == (201, spelling)
    assert (await get_refund(api, refund.json["id"])).json["amount"] == spelling


async def test_the_refusal_of_an_excessive_amount_names_the_remainder(api: Api) -> None:
    created = await create_paid(api)
    await post_refund(api, created, amount="1500.00")  # reserved amounts count as refunded
    answer = await post_refund(api, created, amount="90.01")
    assert refusal(answer) == _TOO_MUCH
    assert "90.00 THB" in answer.json["message"]
    assert (await post_refund(api, created, amount="90.00")).status == 201
    for body in ({}, {"amount": "0.01"}):
        answer = await post_refund(api, created, **body)
        assert refusal(answer) == _TOO_MUCH
        assert "refundable remainder of 0 THB" in answer.json["message"]


async def _set_exclusive_fee(api: Api, rate: str = "0.03") -> None:
    await api.world.rows(
        "UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = $1::text::numeric", rate
    )


async def test_a_partial_refund_includes_its_share_of_the_fee_and_the_last_one_the_remainder(
    api: Api,
) -> None:
    await _set_exclusive_fee(api)
    created = await create_paid(api, currency="USD", amount="100.00")
    for amount in ("33.33", "33.33", "33.34"):
        assert (await post_refund(api, created, amount=amount)).status == 201
    await process_refunds(api.world)
    # The buyer paid 103.00: twice 34.3299, rounded down, and the remainder.
    assert [refund.amount_minor for refund in api.world.gateway.refunds] == [3432, 3432, 3436]
    payment = (await api.get(created.json["id"])).json
    assert (payment["status"], payment["refunded_amount"]) == ("REFUNDED", "100.00")
    assert await read_capture(api, created) == (10300, 10300, 0)


async def test_partial_refunds_of_any_size_add_up_to_the_captured_amount(
    api: Api,
) -> None:
    await _set_exclusive_fee(api, "0.0777")
    for parts in (["0.01"] * 3, ["9.98"], ["3.33", "3.33"], []):
        created = await create_paid(api, currency="USD", amount="9.99")
        for part in parts:
            assert (await post_refund(api, created, amount=part)).status == 201
        assert (await post_refund(api, created)).status == 201
        await process_refunds(api.world)
        assert (await api.get(created.json["id"])).json["status"] == "REFUNDED"
        captured, refunded, reserved = await read_capture(api, created)
        assert (captured, refunded, reserved) == (1077, 1077, 0)


async def test_money_released_by_failed_partial_refunds_can_be_refunded_exactly(api: Api) -> None:
    """Failed refunds release less than their share if they were rounded down."""
    await _set_exclusive_fee(api)
    created = await create_paid(api, currency="USD", amount="10.00")
    for _ in range(20):
        assert (
            await post_refund(api, created, amount="0.33")
        ).status == 201  # 0.3399 is rounded to 0.33
    assert (
        await post_refund(api, created)
    ).status == 201  # 3.40, and all amounts that were rounded off
    last_refund = (await read_stored_refunds(api.world))[-1]
    assert last_refund["amount_minor"] == 1030 - 20 * 33
    gateway = api.world.gateway
    gateway.answer_refund = RefundReport(state=GatewayRefundState.DECLINED)
    await api.world.rows("UPDATE refund SET next_at = NULL WHERE id = $1", last_refund["id"])
    await process_refunds(api.world)
    gateway.answer_refund = RefundReport(state=GatewayRefundState.DONE)
    assert await read_capture(api, created) == (1030, 0, last_refund["amount_minor"])
    assert (await post_refund(api, created, amount="6.59")).status == 201
    assert (await post_refund(api, created)).status == 201
    await api.world.rows("UPDATE refund SET next_at = clock() WHERE status = 'PENDING'")
    await process_refunds(api.world)
    assert (await api.get(created.json["id"])).json["status"] == "REFUNDED"
    assert await read_capture(api, created) == (1030, 1030, 0)


async def test_a_refund_in_yen_has_no_decimals(api: Api) -> None:
    created = await create_paid(api, currency="JPY", amount="1001")
    for spelling in ("0.5", "500.0"):
        assert refusal(await post_refund(api, created, amount=spelling)) == _REFUSED
    assert (await post_refund(api, created, amount="500")).status == 201
    remainder = await post_refund(api, created)
    assert remainder.json["amount"] == "501"
    await process_refunds(api.world)
    assert [refund.amount_minor for refund in api.world.gateway.refunds] == [500, 501]
    assert (await api.get(created.json["id"])).json["refunded_amount"] == "1001"


def _set_capabilities(monkeypatch: pytest.MonkeyPatch, gateway: FakeGateway, **fields: Any) -> None:
    capabilities = GatewayCapabilities(credentials=frozenset({"signing_secret"}), **fields)
    monkeypatch.setattr(gateway, "capabilities", capabilities)


async def test_a_refund_that_the_gateway_does_not_support_is_unprocessable(
    api: Api, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await create_paid(api)
    _set_capabilities(monkeypatch, gateway, decimals=None, refunds=RefundSupport.NONE)
    assert refusal(await post_refund(api, created)) == _UNPROCESSABLE
    _set_capabilities(monkeypatch, gateway, decimals=None, refunds=RefundSupport.FULL_ONLY)
    assert refusal(await post_refund(api, created, amount="90.00")) == _UNPROCESSABLE
    _set_capabilities(monkeypatch, gateway, decimals={"THB": 0})
    assert refusal(await post_refund(api, created, amount="90.50")) == _UNPROCESSABLE
    assert (await post_refund(api, created, amount="90.00")).status == 201
    _set_capabilities(monkeypatch, gateway, decimals=None, refunds=RefundSupport.FULL_ONLY)
    assert refusal(await post_refund(api, created)) == _UNPROCESSABLE  # not the full amount
    assert len(await read_stored_refunds(api.world)) == 1


async def test_refunds_are_unavailable_if_the_provider_is_no_longer_installed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await create_paid(api)
    monkeypatch.setattr(api.world.service.accounts, "gateways", {})
    assert refusal(await post_refund(api, created)) == (503, "REFUND_PROVIDER_UNAVAILABLE")


async def test_a_gateway_payment_cannot_be_refunded_to_an_address(api: Api) -> None:
    answer = await post_refund(api, await create_paid(api), destination=PAYER)
    assert refusal(answer) == _UNPROCESSABLE
    assert answer.json["message"].startswith("destination: ")


class TestInTokens:
    """Refunds of a payment in dollars that was paid with tokens."""

    @pytest.fixture
    async def service(self, settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
        async with contract_service(settings, gateway) as service:
            yield service

    async def _paid(self, api: Api, **changes: Any) -> Answer:
        method = (await offer_tokens(api.world, "bsc"))["USDT"]
        created = await api.create(**({"currency": "USD", "amount": "25.50"} | changes))
        assert (await select(api, created, payment_method_id=method)).status == 200
        stored = await api.world.read(await payment_of(api, created))
        assert stored.session is not None
        token = bytes.fromhex((await self._token(api))[2:])
        await record_final_logs(api.world, log_of(stored.session, token=token), chain="bsc")
        assert await api.world.status(stored.payment) == "PAID"
        return created

    async def _token(self, api: Api) -> str:
        [row] = await api.world.rows(
            "SELECT '0x' || encode(address, 'hex') AS address FROM chain_token "
            "WHERE chain = 'bsc' AND symbol = 'USDT'"
        )
        return row["address"]

    async def test_a_partial_refund_is_its_share_in_the_tokens_smallest_unit(
        self, api: Api
    ) -> None:
        created = await self._paid(api)
        part = await post_refund(api, created, amount="8.50")
        assert (part.json["amount"], part.json["currency"]) == ("8.50", "USD")
        remainder = await post_refund(api, created)
        assert remainder.json["amount"] == "17.00"
        captured, _, reserved = await read_capture(api, created)
        assert captured == reserved
        [first, second] = await read_stored_refunds(api.world)
        assert (first["amount_minor"], second["amount_minor"]) == (
            captured // 3,
            captured - captured // 3,
        )

    async def test_a_refund_goes_to_the_payer_and_needs_approval_for_another_address(
        self, api: Api
    ) -> None:
        created = await self._paid(api)
        to_payer = await post_refund(api, created, amount="1.00")
        assert to_payer.json["destination"] == PAYER
        address = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"  # with an EIP-55 checksum
        to_address = await post_refund(api, created, amount="1.00", destination=address)
        assert (to_address.status, to_address.json["status"]) == (201, "PENDING")
        assert to_address.json["destination"] == address.lower()
        assert [row["step"] for row in await read_stored_refunds(api.world)] == [
            "queued",
            "approval",
        ]

    @pytest.mark.parametrize(
        "destination",
        [
            "0x" + 40 * "0",
            "0x" + 39 * "1",
            "0x" + 41 * "1",
            40 * "1",
            "0X" + 40 * "1",
            "0x" + 38 * "1" + " 1",
            "0x" + 39 * "1" + "g",
            "0xFb6916095ca1df60bB79Ce92cE3Ea74c37c5d359",  # wrong checksum
            "satoshi.eth",
        ],
    )
    async def test_an_invalid_address_is_refused(self, api: Api, destination: str) -> None:
        created = await self._paid(api)
        answer = await post_refund(api, created, destination=destination)
        assert refusal(answer) == (400, "BAD_REQUEST")
        assert await read_stored_refunds(api.world) == []
