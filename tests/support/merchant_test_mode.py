"""The test merchant of a merchant."""

from dataclasses import replace

from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import ListPaymentMethods
from tests.support.world import World


async def make_test_world(world: World) -> World:
    """Return the test merchant of the world's merchant, with a test account of its gateway."""
    account = AddAccount(
        provider="fake",
        base_url="http://gateway.test",
        credentials={"signing_secret": world.signing_secret},
        test=True,
    )
    account_id = (await world.perform(account)).id
    issued = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    methods = await world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    return replace(
        world,
        merchant_id=issued.merchant_id,
        api_key=issued.api_key,
        account_id=account_id,
        card=next(method.id for method in methods if method.account_id == account_id),
    )
