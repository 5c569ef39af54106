"""Test payments to an address follow the rules of real deposits, without a chain."""

from typing import Any
from uuid import uuid4

import pytest

from payintent.chains import store as chain_store
from payintent.chains.operations import AddContract
from payintent.core.errors import NotFoundError
from payintent.evm.deposits import derive_deposit_address
from payintent.merchants.methods_operations import ListPaymentMethods
from tests.http.builtin_gateway import act, advance, inquire, side
from tests.refunds.requests import post_refund as refund
from tests.refunds.requests import process_refunds as send_refunds
from tests.support.arrange import payment_of, select
from tests.support.world import Answer, Api

__all__ = ["side"]


async def _bill(side: Api, token: str = "USDT") -> tuple[Answer, dict[str, Any]]:  # noqa: S107
    """Create a payment of 25.50 USD and select a test token; return it and its session."""
    created = await side.create(currency="USD", amount="25.50")
    methods = await side.world.perform(ListPaymentMethods(merchant_id=side.world.merchant_id))
    [method] = [item for item in methods if item.token == token]
    selected = await select(side, created, payment_method_id=method.id)
    assert selected.json["next_action"]["type"] == "onchain_session", selected.json
    session_id = selected.json["next_action"]["onchain_session"]["session_id"]
    return created, (await side.send("GET", f"/v1/onchain/sessions/{session_id}")).json


async def _outcome(side: Api, created: Answer) -> tuple[str, str | None, list[str], list[str]]:
    """Return a payment's status and failure reason, its events, and its cases."""
    payment = await payment_of(side, created)
    got = (await side.get(created.json["id"])).json
    events, cases = await side.world.events(payment), await side.world.cases(payment)
    return got["status"], got.get("failure_reason"), events, cases


async def test_a_test_session_looks_like_a_real_session_with_a_verifiable_address(
    side: Api,
) -> None:
    _, session = await _bill(side)
    assert (session["payable"], session["status"]) == (True, "awaiting_payment")
    assert (session["chain"]["slug"], session["chain"]["name"]) == ("test", "Test chain")
    assert session["remaining"] == {"amount": "25.5", "amount_smallest_unit": "25500000"}
    factory = (await side.send("GET", "/v1/chains/test")).json["deposits"]
    names = ("factory_address", "init_code_hash")
    address = derive_deposit_address(
        *(bytes.fromhex(factory[name][2:]) for name in names),
        bytes.fromhex(session["pay_uuid"][2:]),
    )
    assert session["deposit_address"].lower() == f"0x{address.hex()}"


async def test_a_single_transfer_completes_the_payment(side: Api) -> None:
    created, _ = await _bill(side)
    paid = await act(side, created, "transfer")
    assert (paid.status, paid.json["status"], paid.json["provider"]) == (200, "PAID", "onchain")
    assert await _outcome(side, created) == ("PAID", None, ["payment.completed"], [])


async def test_two_transfers_complete_the_payment_and_the_session_shows_the_rest(side: Api) -> None:
    created, session = await _bill(side)
    part = await act(side, created, "transfer", amount="10.25")
    assert part.json["status"] == "PROCESSING"
    response = (await side.send("GET", f"/v1/onchain/sessions/{session['id']}")).json
    assert (response["status"], response["remaining"]["amount"]) == ("partial", "15.25")
    assert [transaction["state"] for transaction in response["transactions"]] == ["final"]
    await act(side, created, "transfer")
    assert await _outcome(side, created) == ("PAID", None, ["payment.completed"], [])


@pytest.mark.parametrize(
    ("transfers", "expected"),
    [
        ([{"amount": "20"}], ("FAILED", "AMOUNT_MISMATCH", ["AMOUNT_MISMATCH"])),
        ([{"token": "USDC"}], ("FAILED", "TOKEN_MISMATCH", ["TOKEN_MISMATCH"])),
        ([{"amount": "30"}], ("PAID", None, ["SURPLUS"])),
        ([], ("EXPIRED", None, [])),
    ],
)
async def test_the_received_transfers_determine_the_outcome_at_the_deadline(
    side: Api, transfers: list[dict[str, str]], expected: tuple[str, str | None, list[str]]
) -> None:
    created, _ = await _bill(side)
    for transfer in transfers:
        assert (await act(side, created, "transfer", **transfer)).status == 200
    await advance(side, 3_600)
    for _ in range(2):
        await inquire(side)
    status, reason, events, cases = await _outcome(side, created)
    assert (status, reason, cases) == expected
    assert len(events) == 1


async def test_the_amount_of_a_case_has_the_decimals_of_the_test_token(side: Api) -> None:
    created, _ = await _bill(side)
    await act(side, created, "transfer", amount="30")
    [case] = (await side.send("GET", "/v1/cases", headers=side.bearer())).json["data"]
    assert (case["kind"], case["amount"], case["currency"]) == ("SURPLUS", "4.5", "USDT")


async def test_a_late_transfer_opens_a_case_and_does_not_change_the_payment(side: Api) -> None:
    created, _ = await _bill(side)
    await advance(side, 3_600)
    for _ in range(2):
        await inquire(side)
    assert (await act(side, created, "transfer")).json["status"] == "EXPIRED"
    assert await _outcome(side, created) == (
        *("EXPIRED", None, ["payment.expired"]),
        ["LATE_PAYMENT"],
    )


async def test_a_repeated_request_sends_one_transfer(side: Api) -> None:
    created, _ = await _bill(side)
    key = str(uuid4())
    for _ in range(2):
        answer = await act(side, created, "transfer", key, amount="10")
        assert (answer.status, answer.json["status"]) == (200, "PROCESSING")
    changed = await act(side, created, "transfer", key, amount="11")
    assert changed.json["code"] == "IDEMPOTENCY_CONFLICT"
    [row] = await side.world.rows("SELECT count(*) AS n FROM test_transfer")
    assert row["n"] == 1


@pytest.mark.parametrize(
    "body",
    [{"amount": amount} for amount in ("0", "-1", "1.0000001", "1e3", "1000001", "x", "\x00")]
    + [{"amount": amount} for amount in ("9" * 40, f"1000000.{'0' * 30}1")]
    + [{"token": "NATIVED"}, {"amount": 5}],
)
async def test_an_invalid_transfer_is_refused_without_effect(
    side: Api, body: dict[str, Any]
) -> None:
    created, _ = await _bill(side)
    refused = await act(side, created, "transfer", **body)
    assert (refused.status, refused.json["code"]) == (400, "BAD_REQUEST")
    [row] = await side.world.rows("SELECT count(*) AS n FROM test_transfer")
    assert row["n"] == 0


async def test_a_test_payment_to_an_address_is_refunded(side: Api) -> None:
    created, _ = await _bill(side)
    await act(side, created, "transfer")
    assert (await refund(side, created)).status == 201
    await send_refunds(side.world)
    assert (await side.get(created.json["id"])).json["status"] == "REFUNDED"


async def test_the_test_chain_is_separate_from_live_keys_and_chains(side: Api, api: Api) -> None:
    live = await api.create(currency="USD", amount="25.50")
    refused = await act(api, live, "transfer")
    assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN")
    created, _ = await _bill(side)
    assert (await act(api, created, "transfer")).json["code"] == "FORBIDDEN"
    add = AddContract(
        chain="test", address="0x" + 40 * "1", receiver="0x" + 40 * "2", deployed_block=1
    )
    with pytest.raises(NotFoundError):
        await api.world.perform(add)
    assert "test" not in {chain.slug for chain in await chain_store.list_chains(api.world.database)}
    page = f"/c/{live.json['checkout_id']}/test-transfer"
    assert (await api.send("POST", page, data={"send": "rest"})).status == 404
    for table in ("chain_receipt", "deposit_address", "chain_contract", "chain_cursor"):
        assert await side.world.rows(f"SELECT FROM {table}") == []


@pytest.mark.parametrize(
    ("button", "status"),
    [("rest", "PAID"), ("half", "PROCESSING"), ("more", "PAID"), ("other", "PROCESSING")],
)
async def test_the_page_warns_and_its_buttons_send_transfers(
    side: Api, button: str, status: str
) -> None:
    created, session = await _bill(side)
    path = f"/c/{created.json['checkout_id']}"
    page = (await side.send("GET", path)).body.decode()
    assert "Never send real tokens to it." in page
    assert session["deposit_address"][:8] in page
    assert not any(name in page for name in ("address.svg", "ethereum:0x"))
    response = await side.send(
        "POST", f"{path}/test-transfer", data={"send": f"test_deposit_{button}"}
    )
    assert response.status == 303
    assert (await side.get(created.json["id"])).json["status"] == status
