"""Create, process and read refunds in tests, over HTTP."""

from typing import Any
from uuid import UUID, uuid4

from payintent.core import ids
from payintent.refunds import store as refund_store
from tests.support.arrange import bring_to, callback, payment_of, select
from tests.support.world import Answer, Api, World

REFUNDS = "/v1/payments/{payment_id}/refunds"
REFUND = "/v1/refunds/{refund_id}"
UNKNOWN_REFUND = "ref_0000000000000000000001"


async def create_paid(api: Api, **changes: Any) -> Answer:
    """Create a payment, and report a capture of exactly the quoted amount."""
    created = await api.create(**changes)
    await capture_payment(api, created)
    return created


async def capture_payment(api: Api, created: Answer) -> None:
    """Select the card, and report a capture of the total."""
    assert (await select(api, created)).status == 200
    stored = await api.world.read(await payment_of(api, created))
    assert stored.session is not None
    offer = stored.session.quote
    capture = {
        "reference": f"cap-{created.json['id']}",
        "amount_minor": offer.total_minor,
        "currency": offer.price.currency,
    }
    report = {"state": "captured", "capture": capture}
    answer = await callback(api, stored.session.id, report, callback_id=created.json["id"])
    assert answer.status == 200
    assert await api.world.status(stored.payment) == "PAID"


async def create_in_status(api: Api, status: str) -> Answer:
    """Create a payment of 1590.00 THB with this status, which can also be REFUNDED."""
    if "REFUNDED" not in status and status != "PAID":
        created = await api.create()
        await bring_to(api, created, status)
        return created
    created = await create_paid(api)
    if status != "PAID":
        part = {"amount": "90.00"} if status == "PARTIALLY_REFUNDED" else {}
        assert (await post_refund(api, created, **part)).status == 201
        await process_refunds(api.world)
    assert (await payment_of(api, created)).status == status
    return created


async def post_refund(api: Api, created: Answer, key: str | None = None, **body: Any) -> Answer:
    """Send `POST /payments/{id}/refunds`, without a body if there are no fields."""
    options: dict[str, Any] = {"json": body} if body else {}
    return await _post(api, created.json["id"], key or str(uuid4()), **options)


async def post_raw_refund(api: Api, created: Answer, body: str, key: str | None = None) -> Answer:
    """Send `POST /payments/{id}/refunds` with exactly this body."""
    return await _post(api, created.json["id"], key or str(uuid4()), data=body.encode())


async def _post(api: Api, payment_id: str, key: str, **options: Any) -> Answer:
    headers = api.bearer() | {"Idempotency-Key": key}
    if "data" in options:
        headers["Content-Type"] = "application/json"
    path = REFUNDS.format(payment_id=payment_id)
    return await api.send("POST", path, headers=headers, **options)


async def get_refund(api: Api, refund_id: str) -> Answer:
    return await api.send("GET", REFUND.format(refund_id=refund_id), headers=api.bearer())


async def get_refunds(api: Api, created: Answer, query: str = "") -> Answer:
    path = REFUNDS.format(payment_id=created.json["id"]) + query
    return await api.send("GET", path, headers=api.bearer())


async def process_refunds(world: World) -> None:
    """Process refunds like a worker until no refund is due."""
    service = world.service
    while due := await refund_store.claim_due(world.database, 500, 60.0, []):
        for item in due:
            await service.refund_sender.process(item)


async def read_stored_refunds(world: World) -> list[Any]:
    """Read all stored refunds, oldest first."""
    return await world.rows("SELECT * FROM refund ORDER BY id")


async def read_capture(api: Api, created: Answer) -> tuple[int, int, int]:
    """Return the captured, refunded and reserved amounts."""
    payment = await payment_of(api, created)
    [row] = await api.world.rows(
        "SELECT amount_minor, refunded_minor, reserved_minor FROM capture WHERE payment_id = $1",
        payment.id,
    )
    return (
        int(row["amount_minor"]),
        int(row["refunded_minor"]),
        int(row["reserved_minor"]),
    )


def parse_refund_id(refund: Answer) -> UUID:
    refund_id = ids.parse_id(ids.REFUND, refund.json["id"])
    assert refund_id is not None
    return refund_id
