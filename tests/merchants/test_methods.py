"""A payment method is never added without being offered."""

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.merchants.methods_store import METHODS_MAX
from tests.support.world import World


async def test_a_merchant_has_at_most_as_many_methods_as_are_listed(world: World) -> None:
    add = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=world.account_id,
        kind="qr",
        label="QR",
        currencies=["THB"],
    )
    await world.rows(
        """
        INSERT INTO payment_method (merchant_id, account_id, kind, label, currencies)
        SELECT $1, $2, 'card', 'Card', '{THB}'
        FROM generate_series((SELECT count(*) FROM payment_method WHERE merchant_id = $1) + 2, $3)
        """,
        world.merchant_id,
        world.account_id,
        METHODS_MAX,
    )
    last = await world.perform(add)
    listed = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    assert (len(listed), last.id in {method.id for method in listed}) == (METHODS_MAX, True)
    with pytest.raises(RefusedError, match="at most 200 payment methods") as refused:
        await world.perform(add)
    assert refused.value.code is ErrorCode.CONFLICT
