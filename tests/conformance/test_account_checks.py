"""An account check explains errors, moves no money and reveals no secret."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from payintent.gateways.port import AccountCheck, AccountProblem, GatewayAccount, GatewayRefundState
from tests.conformance.arrange import make_refund_request, open_paid_session, open_session
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Traits, where
from tests.support.authority import Authority

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]

#: The problem that a check reports for each fault.
MEANINGS = {
    Fault.REFUSE: AccountProblem.ADDRESS,
    Fault.STATUS_500: AccountProblem.NO_RESPONSE,
    Fault.GARBAGE: AccountProblem.OTHER_GATEWAY,
    Fault.HTML_404: AccountProblem.OTHER_GATEWAY,
    Fault.FORBIDDEN: AccountProblem.THROTTLED,
    Fault.TOO_MANY: AccountProblem.THROTTLED,
    Fault.OTHER_TIME: AccountProblem.CLOCK,
}
#: Paths that change nothing, in addition to the paths of inquiries.
HARMLESS = frozenset({"/v1/balance"})
ALL_CREDENTIALS = frozenset(
    {
        *("api_key", "gateway_public_key", "hash_iv", "hash_key", "merchant_id"),
        *("merchant_private_key", "publishable_key", "secret_key", "utc_offset", "webhook_secret"),
    }
)


def _uses_http(adapter: Traits, **_: object) -> bool:
    return adapter.uses_http


uses_http = where(_uses_http)


def _is_checked(adapter: Traits, name: str) -> bool:
    return name in adapter.checked_credentials


async def _check(harness: Harness, account: GatewayAccount | None = None) -> AccountCheck:
    check = await harness.gateway.check_account(account or harness.account)
    assert not [secret for secret in harness.secrets if secret in check.detail]
    assert check.detail.isprintable()
    return check


async def test_both_accounts_of_a_harness_pass_the_check(harness: Harness) -> None:
    for account in (harness.account, harness.other_account):
        check = await _check(harness, account)
        assert check.problem is None, check


@uses_http
async def test_a_check_sends_only_harmless_requests(harness: Harness) -> None:
    assert harness.faults is not None
    money, session = await open_paid_session(harness), await open_session(harness)
    harness.faults.paths.clear()
    await harness.gateway.inquire(harness.account, session.ref)
    report = await harness.gateway.inquire_refund(
        harness.account, make_refund_request(harness, money)
    )
    inquiry_paths = {_shape(path) for path in harness.faults.paths}
    harness.faults.paths.clear()
    await _check(harness)
    assert harness.faults.paths
    assert {_shape(path) for path in harness.faults.paths} <= inquiry_paths | HARMLESS
    assert getattr(report, "state", None) is not GatewayRefundState.DONE
    assert await harness.get_refunded_minor(money.capture) == 0


@where(_is_checked)
@pytest.mark.parametrize("name", sorted(ALL_CREDENTIALS))
async def test_a_wrong_credential_is_reported(harness: Harness, name: str) -> None:
    right = harness.account.credentials[name]
    wrong = right[::-1] if len(set(right)) > 1 else f"{right}1"
    account = replace(harness.account, credentials={**harness.account.credentials, name: wrong})
    check = await _check(harness, account)
    assert check.problem is AccountProblem.CREDENTIALS, check
    assert wrong not in check.detail


@uses_http
@pytest.mark.parametrize("fault", sorted(MEANINGS))
async def test_a_check_reports_the_problem_behind_a_fault(harness: Harness, fault: Fault) -> None:
    assert harness.faults is not None
    async with harness.faults.fault(fault):
        check = await _check(harness)
    assert check.problem is MEANINGS[fault], check


@uses_http
async def test_a_gateway_that_does_not_respond_is_reported(harness: Harness) -> None:
    assert harness.faults is not None
    assert harness.hurried is not None
    async with harness.faults.fault(Fault.HANG):
        check = await harness.hurried.check_account(harness.account)
    assert check.problem is AccountProblem.NO_RESPONSE, check


@uses_http
async def test_a_server_without_tls_is_reported(harness: Harness) -> None:
    https_url = harness.account.base_url.replace("http://", "https://")
    check = await _check(harness, replace(harness.account, base_url=https_url))
    assert check.problem is AccountProblem.TLS, check


@uses_http
async def test_a_certificate_that_cannot_be_verified_is_reported_with_details(
    harness: Harness, tmp_path: Path
) -> None:
    """The server is real, but its certificate authority is not trusted."""
    ssl_context = Authority(tmp_path).server()
    server = await asyncio.start_server(_hang_up, "127.0.0.1", 0, ssl=ssl_context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        account = replace(harness.account, base_url=f"https://127.0.0.1:{port}")
        check = await _check(harness, account)
    assert check.problem is AccountProblem.TLS, check
    assert f"127.0.0.1:{port}" in check.detail
    assert "the certificate of https://127.0.0.1" in check.detail
    assert "unable to get local issuer certificate" in check.detail


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _shape(path: str) -> str:
    """Remove everything after the second segment of a path, such as the session id."""
    return "/".join(path.split("/")[:3])
