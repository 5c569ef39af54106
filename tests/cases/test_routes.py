"""A merchant can list and read only its own cases, newest first."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from payintent.cases.list_store import MerchantCase
from payintent.cases.operations import format_case
from payintent.core import ids
from payintent.gateways.port import DisputeReport, DisputeState, VerifiedCallback
from tests.refunds.requests import create_paid, process_refunds
from tests.support.arrange import payment_of, refusal
from tests.support.fakes import captured
from tests.support.world import Answer, Api


async def listed(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/cases{query}", headers=api.bearer(key))


async def paid_again(api: Api, amount_minor: int = 159000, currency: str = "THB") -> str:
    """Let a payment be paid twice; return its id."""
    created = await create_paid(api)
    payment = await payment_of(api, created)
    assert payment.session_id is not None
    again = captured(amount_minor, currency, reference=f"again-{payment.id}")
    await api.world.report(payment, payment.session_id, again)
    return created.json["id"]


async def dispute(api: Api, payment_id: str) -> None:
    service = api.world.service
    report = DisputeReport(
        reference=f"du-{payment_id}",
        capture=f"cap-{payment_id}",
        state=DisputeState.OPEN,
        amount_minor=50000,
        currency="THB",
        reason="fraudulent",
    )
    callback = VerifiedCallback(id=f"evt-{payment_id}", dispute=report)
    await service.callback_receiver.receive(api.world.account_id, callback, b"")


async def test_a_case_shows_its_amount_its_payment_its_status_and_its_times(api: Api) -> None:
    await api.world.rows("UPDATE merchant SET auto_refund = true")
    payment_id = await paid_again(api)
    [case] = (await listed(api)).json["data"]
    assert case.pop("id").startswith("case_")
    assert case.pop("opened_at").endswith("Z")
    assert case == {
        "kind": "DOUBLE_PAYMENT",
        "status": "OPEN",
        "payment_id": payment_id,
        "currency": "THB",
        "amount": "1590.00",
    }
    await process_refunds(api.world)
    [case] = (await listed(api)).json["data"]
    assert (case["status"], "closed_at" in case) == ("REFUNDED", True)


async def test_a_dispute_is_shown_with_the_gateways_report(api: Api) -> None:
    created = await create_paid(api)
    await dispute(api, created.json["id"])
    [case] = (await listed(api)).json["data"]
    assert (case["kind"], case["amount"]) == ("DISPUTE", "500.00")
    assert case["dispute"] == {"state": "open", "funds": "untouched", "reason": "fraudulent"}


@pytest.mark.parametrize(
    ("currency", "amount_minor", "expected"),
    [("JPY", 500, "500"), ("KWD", 1234, "1.234"), ("EUR", 1, "0.01")],
)
async def test_amounts_have_the_decimals_of_their_currency(
    api: Api, currency: str, amount_minor: int, expected: str
) -> None:
    await paid_again(api, amount_minor, currency)
    [case] = (await listed(api)).json["data"]
    assert (case["currency"], case["amount"]) == (currency, expected)


@pytest.mark.parametrize(
    ("decimals", "expected"), [(6, "25.5"), (18, "0.0000000000255"), (None, None)]
)
def test_chain_amounts_have_the_decimals_of_their_token(
    decimals: int | None, expected: str | None
) -> None:
    case = MerchantCase(
        id=uuid4(),
        kind="LATE_PAYMENT",
        status="OPEN",
        payment_id=None,
        currency="USDT",
        amount_minor=25_500_000,
        token_decimals=decimals,
        on_chain=True,
        opened_at=datetime(2026, 11, 22, tzinfo=UTC),
        closed_at=None,
        dispute=None,
    )
    assert format_case(case).get("amount") == expected


async def test_cases_are_paginated_newest_first(api: Api) -> None:
    assert (await listed(api)).json == {"data": []}
    payment_ids = [await paid_again(api) for _ in range(5)]
    case_ids: list[str] = []
    query = "?limit=2"
    for size in (2, 2, 1):
        answer = (await listed(api, query)).json
        assert len(answer["data"]) == size
        case_ids += [case["payment_id"] for case in answer["data"]]
        query = f"?limit=2&cursor={answer.get('next_cursor')}"
    assert "next_cursor" not in answer
    assert case_ids == payment_ids[::-1]


async def test_cases_can_be_filtered_by_status_kind_and_payment(api: Api) -> None:
    first, second = await paid_again(api), await paid_again(api)
    await dispute(api, second)

    async def kinds(query: str) -> list[tuple[Any, Any]]:
        data = (await listed(api, query)).json["data"]
        return [(case["kind"], case["payment_id"]) for case in data]

    assert await kinds("?kind=DISPUTE") == [("DISPUTE", second)]
    assert await kinds(f"?payment_id={first}") == [("DOUBLE_PAYMENT", first)]
    assert len(await kinds("?status=OPEN")) == 3
    assert await kinds("?status=REFUNDED") == []
    assert await kinds(f"?payment_id={first}&kind=DISPUTE") == []
    assert await kinds(f"?payment_id=pay_{22 * 'z'}") == []  # too large for a valid id


@pytest.mark.parametrize(
    "query",
    ["status=open", "kind=GIFT", "payment_id=x", "limit=0", "limit=101", "cursor=", "cursor=AAAA"],
)
async def test_invalid_query_parameters_are_refused(api: Api, query: str) -> None:
    assert refusal(await listed(api, f"?{query}")) == (400, "BAD_REQUEST")


async def test_merchants_cannot_see_each_others_cases(api: Api) -> None:
    payment_id = await paid_again(api)
    other = (await api.world.add_merchant()).api_key
    assert (await listed(api, key=other)).json == {"data": []}
    assert (await listed(api, f"?payment_id={payment_id}", key=other)).json == {"data": []}
    assert len((await listed(api)).json["data"]) == 1


async def test_internal_notes_and_gateway_references_are_not_shown(api: Api) -> None:
    payment_id = await paid_again(api)
    await dispute(api, payment_id)
    await api.world.rows("UPDATE money_case SET note = 'a word of the operator'")
    text = str((await listed(api)).json)
    for hidden in ("a word", "again-", "du-", "cap-", "ses", "account"):
        assert hidden not in text
    assert ids.parse_id(ids.PAYMENT, payment_id)
