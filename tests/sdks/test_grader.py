"""The grader passes our demo shop, and detects each fault of a broken shop."""

import asyncio
import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.runtime.settings import Settings
from tests.sandbox.shop.shop_setup import SECRET, running_shop
from tests.sdks.broken_money import MONEY_FAULTS, Side
from tests.sdks.broken_shop import ALL_FAULTS, FAULTS, KEY, broken_shop
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PYTHON, unpack_package
from tests.sdks.scripted_server import refusal, scripted
from tests.support.workers import working
from tests.support.world import Api

pytestmark = pytest.mark.full

_PAGE = Path(__file__).parents[2] / "docs/integrate/grader.md"
_REWRITE = "REWRITE_GRADER_REPORTS"  # if it is set, the test rewrites the reports on the page
Outcomes = list[dict[str, Any]]
_BROKEN_SECRET = "whsec_" + base64.b64encode(KEY).decode()


async def run(
    *arguments: str, secret: str = "", text: str = "", **environment: str
) -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    path = {"PYTHONPATH": f"{unpack_package(CLI_PROJECT)}:{unpack_package()}"}
    # TLS is not used, and reading all certificate authorities for each client would be slow.
    variables = {"PAYINTENT_WEBHOOK_SECRET": secret, "SSL_CERT_DIR": str(HERE)}
    process = await asyncio.create_subprocess_exec(
        PYTHON, *arguments, env=inherited | path | variables | environment, cwd="/",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(text.encode()), 120)
    return process.returncode or 0, out.decode(), err.decode()


async def run_grader(
    webhooks: str, orders: str, secret: str, *options: str, **environment: str
) -> tuple[int, str, str]:
    urls = ("--webhook-url", webhooks, "--orders-url", orders)
    arguments = ("grade", *urls, "--settle", "0", *options)
    return await run("-m", "payintent_cli", *arguments, secret=secret, **environment)


async def grade_all(
    shops: Mapping[str, list[str] | None], sides: Mapping[str, Side], api: Api | None = None
) -> dict[str, Outcomes]:
    """Grade shops with these faults; run the given checks, or all checks if None."""
    async with broken_shop(sides) as base:
        if api is not None:
            await allow_returns(api, base)
        addresses = [f"{base}/{shop}" for shop in shops]
        configurations = [
            (asdict(sides[shop]) if sides else None, checks) for shop, checks in shops.items()
        ]
        command = (str(HERE / "use_grader.py"), _BROKEN_SECRET, *addresses)
        status, out, error = await run(*command, text=json.dumps(configurations))
    assert status == 0, error
    return dict(zip(shops, json.loads(out), strict=True))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcomes]:
    """The outcomes for a good shop, and for a shop with each fault."""
    return asyncio.run(grade_all(dict.fromkeys(["good", *FAULTS.values()]), {}))


def list_failed_checks(outcomes: Outcomes) -> list[str]:
    return [outcome["name"] for outcome in outcomes if not outcome["passed"]]


@pytest.mark.parametrize(("check", "fault"), FAULTS.items())
def test_each_fault_of_a_shop_fails_exactly_one_check(
    outcomes: dict[str, Outcomes], check: str, fault: str
) -> None:
    assert list_failed_checks(outcomes[fault]) == [check], outcomes[fault]


def test_a_good_shop_passes_every_check_and_every_check_has_a_fault(
    outcomes: dict[str, Outcomes],
) -> None:
    good = outcomes["good"]
    assert list_failed_checks(good) == [], good
    assert [item["name"] for item in good] == list(FAULTS)
    assert len(outcomes[FAULTS["paid"]]) == 1, "no further check runs if the shop cannot be paid"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Make the workers poll more often, because the checks wait for each refund."""
    return settings.model_copy(update={"refund_every_s": 0.05, "inquire_every_s": 0.1})


async def new_side(api: Api) -> Side:
    """Create a merchant with a test merchant, because a test clock affects all its payments."""
    merchant = await api.world.add_merchant()
    issued = await api.world.perform(IssueApiKey(merchant_id=merchant.merchant.id, test=True))
    return Side(base_url=api.base, key=issued.api_key)


async def allow_returns(api: Api, *origins: str) -> None:
    """Allow every merchant's payments to redirect buyers to these origins."""
    await api.world.rows("UPDATE merchant SET allowed_origins = $1::text[]", list(origins))


async def test_each_payment_fault_fails_exactly_one_check_and_a_good_shop_passes_all(
    api: Api,
) -> None:
    names = list(MONEY_FAULTS)
    shops = {"good": names}
    for related in (names[:6], names[6:12], names[12:]):  # two groups of payments, and the refunds
        shops |= {MONEY_FAULTS[name]: related for name in related}
    sides = {shop: await new_side(api) for shop in shops}
    async with working(api.world.service):
        outcomes_by_shop = await grade_all(shops, sides, api)
    expected = {fault: [check] for check, fault in MONEY_FAULTS.items()}
    assert {shop: list_failed_checks(outcomes) for shop, outcomes in outcomes_by_shop.items()} == {
        "good": []
    } | expected
    assert [item["name"] for item in outcomes_by_shop["good"]] == ["paid", *MONEY_FAULTS]
    assert len(outcomes_by_shop[MONEY_FAULTS["real"]]) == 2, (
        "no further check runs without a real payment"
    )


async def test_the_reports_on_the_page_match_the_demo_shop_and_a_broken_shop(
    api: Api,
) -> None:
    side, broken_side = await new_side(api), await new_side(api)
    faults = "+".join(ALL_FAULTS)
    url = {"PAYINTENT_URL": api.base}
    async with working(api.world.service):
        async with running_shop(f"{api.base}/v1", side.key) as shop:
            await allow_returns(api, shop)
            urls = (f"{shop}/webhooks", f"{shop}/graded", SECRET)
            good = await run_grader(*urls, "--key", side.key, **url)
        assert (good[0], good[2]) == (0, ""), good
        async with broken_shop({faults: broken_side}) as base:
            await allow_returns(api, base)
            urls = (f"{base}/{faults}/webhooks", f"{base}/{faults}/orders", _BROKEN_SECRET)
            bad = await run_grader(*urls, "--key", PAYINTENT_API_KEY=broken_side.key, **url)
        assert (bad[0], bad[2]) == (1, ""), bad
    page = _PAGE.read_text()
    reports = iter((good[1], bad[1]))
    new_page = re.sub(r"(?<=```text\n).*?(?=```)", lambda _: next(reports), page, flags=re.DOTALL)
    if os.environ.get(_REWRITE):
        _PAGE.write_text(new_page)
        return
    assert page == new_page, "run `make docs` to update docs/integrate/grader.md"


async def test_a_shop_that_cannot_be_paid_is_reported_as_text_and_as_json() -> None:
    async with broken_shop() as base:
        shop = (
            f"{base}/ignores_payments/webhooks",
            f"{base}/ignores_payments/orders",
            _BROKEN_SECRET,
        )
        text, as_json, unknown_shop = await asyncio.gather(
            run_grader(*shop),
            run_grader(*shop, "--json"),
            run_grader(f"{base}/x/webhooks", f"{base}/x/nothing", _BROKEN_SECRET),
        )
    summary = f"0 of 1 passed; {len(FAULTS) - 1} were not run: fix this first\n"
    assert (text[0], text[1].endswith(summary)) == (1, True), text
    assert (as_json[0], json.loads(as_json[1])["passed"]) == (1, False)
    assert (unknown_shop[0], "404" in unknown_shop[2]) == (2, True)


async def test_the_grader_requires_the_secret_in_the_environment() -> None:
    status, _, error = await run_grader("http://127.0.0.1:9", "http://127.0.0.1:9", "")
    assert (status, "set PAYINTENT_WEBHOOK_SECRET" in error) == (2, True)


@pytest.mark.parametrize(
    ("options", "key"),
    [(("--key", "sk_live_x"), ""), (("--key",), "sk_live_x"), (("--key", "--live"), "sk_live_x")],
)
async def test_the_grader_refuses_a_live_key(options: tuple[str, ...], key: str) -> None:
    nowhere = "http://127.0.0.1:9"
    status, _, error = await run_grader(nowhere, nowhere, SECRET, *options, PAYINTENT_API_KEY=key)
    assert (status, "sk_test_" in error) == (2, True), error


async def test_the_selected_checks_run_and_payment_checks_without_a_key_are_refused() -> None:
    async with broken_shop() as base:
        shop = (f"{base}/good/webhooks", f"{base}/good/orders", _BROKEN_SECRET)
        selected, unknown = await asyncio.gather(
            run_grader(*shop, "--only", "late,rotation"), run_grader(*shop, "--only", "late,real")
        )
    assert (selected[0], selected[1].endswith("3 of 3 passed\n")) == (0, True), selected
    assert (unknown[0], "need --key: real" in unknown[2]) == (2, True), unknown


async def test_completed_checks_are_reported_if_the_grader_cannot_continue() -> None:
    empty = {"data": [], "after": "x", "has_more": False}
    async with broken_shop() as base, scripted((200, {}, empty), refusal(403, "FORBIDDEN")) as api:
        base_url = f"{base}/fails_on_order_changes+refuses_old_events"
        shop = (f"{base_url}/webhooks", f"{base_url}/orders", _BROKEN_SECRET)
        only = ("--only", "late,changed_order,both_paid")
        text, as_json, refused, unknown_shop = await asyncio.gather(
            run_grader(*shop, *only),
            run_grader(*shop, *only, "--json"),
            run_grader(*shop, "--only", "late", "--key", "sk_test_x", "--base-url", api.url),
            run_grader(f"{base}/x/webhooks", f"{base}/x/nothing", _BROKEN_SECRET, "--json"),
        )
    summary = "1 of 2 passed; {} not run: the grader could not continue\n"
    assert (text[0], text[1].endswith(summary.format("2 were"))) == (2, True), text
    assert "FAIL  late: " in text[1]
    assert re.fullmatch(
        r"payintent-cli: changed_order: POST http://\S+/change: responded 500\n", text[2]
    ), text
    report = json.loads(as_json[1])
    assert (as_json[0], report["passed"], list_failed_checks(report["checks"])) == (
        2,
        False,
        ["late"],
    )
    assert report["stopped"].startswith("changed_order: ")
    assert (refused[0], refused[1].endswith(summary.format("1 was"))) == (2, True), refused
    assert refused[2].startswith("payintent-cli: real: "), refused
    assert (unknown_shop[0], json.loads(unknown_shop[1])["checks"]) == (2, [])
