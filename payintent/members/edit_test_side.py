"""Let members create and change their merchant's test side without an operator."""

from dataclasses import replace

from payintent.merchants.access_operations import IssueApiKey, IssuedApiKey
from payintent.merchants.provisioning import lock_test_side
from payintent.operators.operation import Actor, OperationContext, run

_FIRST_KEY = "first"


async def create_test_side(
    context: OperationContext, actor: Actor, live_merchant_id: int
) -> IssuedApiKey | None:
    """Create a live merchant's test merchant with a key; None if it already exists."""
    change = IssueApiKey(merchant_id=live_merchant_id, name=_FIRST_KEY, test=True)
    async with context.database.transaction() as tx:
        if await lock_test_side(tx, live_merchant_id) is not None:
            return None
        return await run(replace(context, actor=actor), tx, change)
