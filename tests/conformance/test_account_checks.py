"""An account check explains errors, moves no money and reveals no secret."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from payintent.gateways.port import AccountCheck, AccountProblem, GatewayAccount, GatewayRefundState
from tests.conformance.arrange import opened, paid, refund_of
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Traits, where
from tests.support.authority import Authority

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]

#: What each fault means for somebody who sets up an account.
MEANINGS = {
    Fault.REFUSE: AccountProblem.ADDRESS,
    Fault.STATUS_500: AccountProblem.NO_RESPONSE,
    Fault.GARBAGE: AccountProblem.OTHER_GATEWAY,
    Fault.HTML_404: AccountProblem.OTHER_GATEWAY,
    Fault.FORBIDDEN: AccountProblem.THROTTLED,
    Fault.TOO_MANY: AccountProblem.THROTTLED,
    Fault.OTHER_TIME: AccountProblem.CLOCK,
}
#: Addresses that change nothing, beside those that inquiries use.
HARMLESS = frozenset({"/v1/balance"})
ALL_CREDENTIALS = frozenset(
    {
        *("api_key", "gateway_public_key", "hash_iv", "hash_key", "merchant_id"),
        *("merchant_private_key", "publishable_key", "secret_key", "utc_offset", "webhook_secret"),
    }
)


def _goes_out(adapter: Traits, **_: object) -> bool:
    return adapter.uses_http


uses_http = where(_goes_out)


def _is_tried(adapter: Traits, name: str) -> bool:
    return name in adapter.tried_credentials


async def _check(harness: Harness, account: GatewayAccount | None = None) -> AccountCheck:
    check = await harness.gateway.check_account(account or harness.account)
    assert not [secret for secret in harness.secrets if secret in check.detail]
    assert check.detail.isprintable()
    return check


async def test_both_accounts_of_the_kit_work(harness: Harness) -> None:
    for account in (harness.account, harness.other_account):
        check = await _check(harness, account)
        assert check.problem is None, check


@uses_http
async def test_a_check_asks_only_what_inquiries_ask(harness: Harness) -> None:
    assert harness.faults is not None
    money, session = await paid(harness), await opened(harness)
    harness.faults.paths.clear()
    await harness.gateway.inquire(harness.account, session.ref)
    report = await harness.gateway.inquire_refund(harness.account, refund_of(harness, money))
    asked = {_shape(path) for path in harness.faults.paths}
    harness.faults.paths.clear()
    await _check(harness)
    assert harness.faults.paths
    assert {_shape(path) for path in harness.faults.paths} <= asked | HARMLESS
    assert getattr(report, "state", None) is not GatewayRefundState.DONE
    assert await harness.given_back(money.capture) == 0


@where(_is_tried)
@pytest.mark.parametrize("name", sorted(ALL_CREDENTIALS))
async def test_a_wrong_credential_is_said(harness: Harness, name: str) -> None:
    right = harness.account.credentials[name]
    wrong = right[::-1] if len(set(right)) > 1 else f"{right}1"
    account = replace(harness.account, credentials={**harness.account.credentials, name: wrong})
    check = await _check(harness, account)
    assert check.problem is AccountProblem.CREDENTIALS, check
    assert wrong not in check.detail


@uses_http
@pytest.mark.parametrize("fault", sorted(MEANINGS))
async def test_what_disturbs_a_check_is_said(harness: Harness, fault: Fault) -> None:
    assert harness.faults is not None
    async with harness.faults.fault(fault):
        check = await _check(harness)
    assert check.problem is MEANINGS[fault], check


@uses_http
async def test_a_gateway_that_never_answers_is_said_to_be_silent(harness: Harness) -> None:
    assert harness.faults is not None
    assert harness.hurried is not None
    async with harness.faults.fault(Fault.HANG):
        check = await harness.hurried.check_account(harness.account)
    assert check.problem is AccountProblem.NO_RESPONSE, check


@uses_http
async def test_a_server_without_tls_is_said_to_have_none(harness: Harness) -> None:
    secured = harness.account.base_url.replace("http://", "https://")
    check = await _check(harness, replace(harness.account, base_url=secured))
    assert check.problem is AccountProblem.TLS, check


@uses_http
async def test_a_certificate_that_cannot_be_verified_is_said_in_words(
    harness: Harness, tmp_path: Path
) -> None:
    """The server is real, but its certificate authority is not trusted."""
    secured = Authority(tmp_path).server()
    server = await asyncio.start_server(_hang_up, "127.0.0.1", 0, ssl=secured)
    async with server:
        port = server.sockets[0].getsockname()[1]
        account = replace(harness.account, base_url=f"https://127.0.0.1:{port}")
        check = await _check(harness, account)
    assert check.problem is AccountProblem.TLS, check
    assert f"127.0.0.1:{port}" in check.detail
    assert "its certificate cannot be verified (" in check.detail
    assert "unable to get local issuer certificate" in check.detail


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _shape(path: str) -> str:
    """Remove the session from a path: its third part, if any."""
    return "/".join(path.split("/")[:3])
