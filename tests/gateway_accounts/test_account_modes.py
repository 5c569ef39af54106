"""Test credentials are rejected for live accounts, and live credentials for test accounts."""

from typing import Any

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.operations import (
    AddAccount,
    ChangeAccount,
    CheckAccount,
    ListAccounts,
)
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import AccountProblem, Gateway, GatewayAccount
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.service import open_service
from tests.support.fakes import FakeGateway
from tests.support.world import ACTOR, World

STRIPE = "https://api.stripe.com"
KEYS = {"publishable_key": "pk_", "webhook_secret": "whsec_1"}
FOR_TESTS = [
    (StripeGateway, STRIPE, {"secret_key": "sk_test_1"}),
    (StripeGateway, STRIPE + "/", {"secret_key": "rk_test_1"}),
    (TwoC2pGateway, "https://sandbox-pgw.2c2p.com", {}),
    (EcpayGateway, "https://payment-stage.ecpay.com.tw", {}),
]
LIVE = [
    (StripeGateway, STRIPE, {"secret_key": "sk_live_1"}),
    (StripeGateway, STRIPE, {"secret_key": "rk_live_1"}),
    (TwoC2pGateway, "https://pgw.2c2p.com", {}),
    (TwoC2pGateway, "https://pgw.2c2p.com/", {}),
    (EcpayGateway, "https://payment.ecpay.com.tw", {}),
]
UNKNOWN = [
    (StripeGateway, "http://127.0.0.1:4242", {"secret_key": "sk_test_1"}),
    (TwoC2pGateway, "http://127.0.0.1:4242", {}),
    (EcpayGateway, "http://127.0.0.1:4242", {}),
    (FakeGateway, "https://gateway.example.com", {}),
]


def mistake(kind: type[Gateway], base_url: str, credentials: dict[str, str], **mode: bool) -> Any:
    account = GatewayAccount(
        id=1, provider=kind.provider, base_url=base_url, credentials=credentials, **mode
    )
    return kind.capabilities.describe_mode_mismatch(account)


@pytest.mark.parametrize(("kind", "base_url", "credentials"), FOR_TESTS)
def test_test_credentials_are_reported_only_for_a_live_account(
    kind: type[Gateway], base_url: str, credentials: dict[str, str]
) -> None:
    assert "for testing" in mistake(kind, base_url, credentials, livemode=True)
    assert mistake(kind, base_url, credentials, livemode=False) is None


@pytest.mark.parametrize(("kind", "base_url", "credentials"), LIVE)
def test_live_credentials_are_reported_only_for_a_test_account(
    kind: type[Gateway], base_url: str, credentials: dict[str, str]
) -> None:
    assert "are live" in mistake(kind, base_url, credentials, livemode=False)
    assert mistake(kind, base_url, credentials, livemode=True) is None


@pytest.mark.parametrize("livemode", [True, False])
@pytest.mark.parametrize(("kind", "base_url", "credentials"), UNKNOWN)
def test_credentials_without_a_recognizable_mode_are_accepted(
    kind: type[Gateway], base_url: str, credentials: dict[str, str], *, livemode: bool
) -> None:
    assert mistake(kind, base_url, credentials, livemode=livemode) is None


def keys(mode: str) -> dict[str, str]:
    return {
        "secret_key": f"sk_{mode}_1",
        "publishable_key": f"pk_{mode}_1",
        "webhook_secret": "whsec_1",
    }


async def test_credentials_of_the_wrong_mode_are_refused_for_an_account(
    world: World,
) -> None:
    http = GatewayHttpClient(timeout_s=1.0, response_bytes_max=1024)
    service = await open_service(world.service.settings, {"stripe": StripeGateway(http)})
    try:
        for mode, test in (("test", False), ("live", True)):
            wrong = AddAccount(
                provider="stripe", base_url=STRIPE, credentials=keys(mode), test=test
            )
            with pytest.raises(RefusedError, match="this") as refused:
                await service.run_operation(wrong, ACTOR)
            assert refused.value.code is ErrorCode.BAD_REQUEST
        right = AddAccount(provider="stripe", base_url=STRIPE, credentials=keys("live"))
        account = await service.run_operation(right, ACTOR)
        with pytest.raises(RefusedError, match="but this is a live account"):
            await service.run_operation(
                ChangeAccount(account_id=account.id, credentials=keys("test")), ACTOR
            )
        assert len(await service.run_operation(ListAccounts(), ACTOR)) == 2
    finally:
        await service.close()
        await http.close()


async def test_a_check_reports_credentials_of_the_wrong_mode(
    world: World,
) -> None:
    http = GatewayHttpClient(timeout_s=1.0, response_bytes_max=1024)
    service = await open_service(world.service.settings, {"stripe": StripeGateway(http)})
    try:
        test = AddAccount(provider="stripe", base_url=STRIPE, credentials=keys("test"), test=True)
        account = await service.run_operation(test, ACTOR)
        await world.rows("UPDATE provider_account SET livemode = true WHERE id = $1", account.id)
        checked = await service.run_operation(CheckAccount(account_id=account.id), ACTOR)
        assert (checked.works, checked.problem) == (False, AccountProblem.CREDENTIALS)
        assert "for testing" in checked.detail
    finally:
        await service.close()
        await http.close()
