"""Fill the console with long names, ids and addresses, as after a year of use."""

from decimal import Decimal

from payintent.merchants.taxes import SetTaxRate
from payintent.operators.operation import Actor
from tests.support.fakes import captured
from tests.support.world import World

_OPERATOR = "oidc:ada.lovelace@payments.example.com/3f0c9a1b7d2e"
_WHY = "Ticket PAY-20417: the customer was charged twice and the bank has confirmed it by letter"
_ORDER = "NIMBUS-2026-11-000000417-EU-RETRY"
_STATEMENTS = (
    """UPDATE merchant SET name = name || ' and Stationery International',
        callback_url = 'https://hooks.nimbus-books.example.com/payintent/v1/callbacks?shop=7'""",
    """UPDATE dispute SET reference = 'dp_1NXWPnLkdIwHu7ixQ2y0X5vE', amount_minor = 123456789,
        state = 'under_review', reason = 'product_unacceptable'""",
    """UPDATE capture SET reference = 'pi_3NXWPnLkdIwHu7ix0Q2y0X5v' || right(reference, 3)
        WHERE receipt_id IS NULL""",
    """UPDATE provider_account
        SET name = 'Cards of Europe', base_url = 'https://europe.gateway.example.com/v3/payments'
        WHERE provider = 'fake'""",
    "ALTER TABLE refund DISABLE TRIGGER refund_frozen",
)


async def lengthen(world: World) -> None:
    """Make the strings in the console about as long as in production."""
    for name in ("wire", "card"):
        payment = await world.create(
            amount_text="1234567.89",
            amount=Decimal("1234567.89"),
            payer_uid="customer-7f3e9b2c-4d51-4a8e-9c1f-2b6d8e0a4c73",
            metadata=f'{{"order_id":"{_ORDER}","channel":"{name}"}}',
        )
        session = (await world.select(payment)).session
        await world.report(payment, session.id, captured(1_000, reference=f"long-{name}"))
    change = SetTaxRate(country="TH", rate=Decimal("0.07"))
    await world.service.submit(change, Actor(_OPERATOR, _WHY))
    for statement in _STATEMENTS:
        await world.rows(statement)
    await world.rows("UPDATE refund SET requested_by = $1", _OPERATOR)
    await world.rows("ALTER TABLE refund ENABLE TRIGGER refund_frozen")
    await world.rows("UPDATE proposal SET why = $1", _WHY)
