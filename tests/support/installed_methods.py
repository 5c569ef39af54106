"""Methods at gateways that every process has; the fake gateway exists only in the test process."""

from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.world import ACTOR

NOBODY_URL = "http://127.0.0.1:9"  # the `discard` port, on which nothing listens


async def add_simulator_account(
    settings: Settings,
    base_url: str = NOBODY_URL,
    api_key: str = "simkey",
    signing_secret: str = "simsecret",  # noqa: S107 - nobody knows it
) -> int:
    """Add an account at the simulator; return its id."""
    service = await open_service(settings)
    try:
        account = AddAccount(
            provider="simulator",
            base_url=base_url,
            credentials={"api_key": api_key, "signing_secret": signing_secret},
        )
        return (await service.run_operation(account, ACTOR)).id
    finally:
        await service.close()


async def add_simulator_method(settings: Settings, *merchants: int) -> None:
    """Offer card payments in baht at the simulator to these merchants' buyers."""
    account_id = await add_simulator_account(settings)
    service = await open_service(settings)
    try:
        for merchant_id in merchants:
            method = AddPaymentMethod(
                merchant_id=merchant_id,
                account_id=account_id,
                kind="card",
                label="Card",
                currencies=["THB"],
            )
            await service.run_operation(method, ACTOR)
    finally:
        await service.close()
