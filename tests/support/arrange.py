"""Setup for HTTP tests: payments brought to a status over HTTP, and callbacks."""

import json
from typing import Any
from uuid import UUID, uuid4

from payintent.core import ids
from payintent.payments import store as payment_store
from payintent.payments.model import Payment
from tests.support.world import Answer, Api

BODY: dict[str, Any] = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}


async def post(api: Api, body: bytes, **headers: str) -> Answer:
    """`POST /payments` with exactly these bytes and a new idempotency key."""
    defaults = {"Idempotency-Key": str(uuid4()), "Content-Type": "application/json"}
    overrides = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.send(
        "POST", "/v1/payments", data=body, headers=api.bearer() | defaults | overrides
    )


def document(**raw: str) -> bytes:
    """Return a creation body with these additional fields, which are given as JSON."""
    values = {name: json.dumps(value) for name, value in BODY.items()} | raw
    return ("{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}").encode()


async def payment_of(api: Api, created: Answer) -> Payment:
    """Read the payment of a creation response, without the API."""
    payment_id = ids.parse_id(ids.PAYMENT, created.json["id"])
    assert payment_id is not None
    payment = await payment_store.get(api.world.database, payment_id)
    assert payment is not None
    return payment.payment


async def count(api: Api, table: str = "payment") -> int:
    [row] = await api.world.rows(f"SELECT count(*) AS n FROM {table}")
    return row["n"]


async def quotes(api: Api, created: Answer, query: str = "", **options: Any) -> Answer:
    path = f"/v1/checkout/{created.json['checkout_id']}/quotes{query}"
    return await api.send("GET", path, **options)


async def select(api: Api, created: Answer, **body: Any) -> Answer:
    """`POST /checkout/{id}/quotes`, by default with the card method."""
    path = f"/v1/checkout/{created.json['checkout_id']}/quotes"
    return await api.send("POST", path, json={"payment_method_id": api.world.card} | body)


async def view(api: Api, created: Answer) -> Answer:
    return await api.send("GET", f"/v1/checkout/{created.json['checkout_id']}")


async def cancel(api: Api, created: Answer, key: str | None = None) -> Answer:
    headers = api.bearer() | ({"Idempotency-Key": key} if key else {})
    return await api.send("POST", f"/v1/payments/{created.json['id']}/cancel", headers=headers)


async def callback(
    api: Api,
    session_id: UUID | None,
    report: dict[str, Any] | None,
    callback_id: str = "cb-1",
    signature: str | None = None,
) -> Answer:
    """Send a callback from the fake gateway."""
    body = {"id": callback_id, "session_id": session_id and str(session_id), "report": report}
    return await api.send(
        "POST",
        f"/v1/callbacks/fake/{api.world.account_id}",
        data=json.dumps(body),
        headers={"fake-signature": signature or api.world.signing_secret},
    )


def captured(amount_minor: int = 159000, reference: str = "cap-1") -> dict[str, Any]:
    capture = {"reference": reference, "amount_minor": amount_minor, "currency": "THB"}
    return {"state": "captured", "capture": capture}


DECLINED = {"state": "declined", "reason": "DECLINED"}


async def bring_to(api: Api, created: Answer, status: str) -> None:
    """Bring a new payment to a status, over HTTP if there is a route."""
    if status == "CANCELLED":
        assert (await cancel(api, created)).status == 200
    elif status == "EXPIRED":
        await api.world.move_clock(1800)
        assert (await api.get(created.json["id"])).status == 200
    elif status != "PENDING":
        assert (await select(api, created)).status == 200
        payment = await payment_of(api, created)
        if status != "PROCESSING":
            report = captured() if status == "PAID" else DECLINED
            assert (await callback(api, payment.session_id, report)).status == 200
    assert (await payment_of(api, created)).status == status


def refusal(answer: Answer) -> tuple[int, str]:
    """Return a refusal's status and code, and check the shape of its body."""
    assert list(answer.json) == ["code", "message"], answer.body
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status, answer.json["code"]


async def offers_tokens(api: Api) -> None:
    """Let the second method accept tokens."""
    await api.world.rows(
        "UPDATE payment_method SET currencies = '{USDT,NATIVED}' WHERE id = $1", api.world.transfer
    )
