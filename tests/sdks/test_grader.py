"""The grader passes our demo shop, and finds each fault of a broken one, for its own reason."""

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.shop.running import SECRET, running_api, running_shop
from tests.sdks.broken_shop import ALL_FAULTS, FAULTS, KEY, broken_shop
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PYTHON, installed

_PAGE = Path(__file__).parents[2] / "docs/grader.md"
_REWRITE = "REWRITE_GRADER_REPORTS"  # set to 1: the page's reports are written anew
_BROKEN_SECRET = "whsec_" + base64.b64encode(KEY).decode()


async def run(*words: str, secret: str = "") -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    path = {"PYTHONPATH": f"{installed(CLI_PROJECT)}:{installed()}"}
    known = {"PAYINTENT_WEBHOOK_SECRET": secret}
    process = await asyncio.create_subprocess_exec(
        PYTHON, *words, env=inherited | path | known, cwd="/",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


async def graded(webhooks: str, orders: str, secret: str, *more: str) -> tuple[int, str, str]:
    words = ("grade", "--webhook-url", webhooks, "--orders-url", orders, "--settle", "0", *more)
    return await run("-m", "payintent_cli", *words, secret=secret)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[dict[str, Any]]]:
    """What the grader finds in a good shop, and in one with each fault."""
    return asyncio.run(grade_all())


async def grade_all() -> dict[str, list[dict[str, Any]]]:
    shops = ["good", *FAULTS.values()]
    async with broken_shop() as base:
        addresses = [f"{base}/{fault}" for fault in shops]
        status, out, error = await run(str(HERE / "use_grader.py"), _BROKEN_SECRET, *addresses)
    assert status == 0, error
    return dict(zip(shops, json.loads(out), strict=True))


@pytest.mark.parametrize(("check", "fault"), FAULTS.items())
def test_each_fault_of_a_shop_fails_one_check_for_its_own_reason(
    outcomes: dict[str, list[dict[str, Any]]], check: str, fault: str
) -> None:
    failed = [one["name"] for one in outcomes[fault] if not one["passed"]]
    assert failed == [check], outcomes[fault]


def test_a_good_shop_passes_every_check_and_each_is_failed_by_a_fault(
    outcomes: dict[str, list[dict[str, Any]]],
) -> None:
    good = outcomes["good"]
    assert [one for one in good if not one["passed"]] == []
    assert [one["name"] for one in good] == list(FAULTS)
    assert len(outcomes[FAULTS["paid"]]) == 1, "nothing else is tried where nothing can be paid"


async def test_the_reports_of_the_page_are_those_of_the_demo_shop_and_of_a_broken_one() -> None:
    async with running_api() as api, running_shop(api.url) as url:
        good = await graded(f"{url}/webhooks", f"{url}/graded", SECRET)
    assert (good[0], good[2]) == (0, ""), good
    faults = "+".join(ALL_FAULTS)
    async with broken_shop() as base:
        bad = await graded(f"{base}/{faults}/webhooks", f"{base}/{faults}/orders", _BROKEN_SECRET)
    assert (bad[0], bad[2]) == (1, ""), bad
    page = _PAGE.read_text()
    reports = iter((good[1], bad[1]))
    written = re.sub(r"(?<=```text\n).*?(?=```)", lambda _: next(reports), page, flags=re.DOTALL)
    if os.environ.get(_REWRITE):
        _PAGE.write_text(written)
        return
    assert page == written, "`make grader-reports` writes docs/grader.md anew"


async def test_it_says_to_programs_and_to_people_where_a_shop_cannot_even_be_paid() -> None:
    async with broken_shop() as base:
        shop = (f"{base}/pays_nothing/webhooks", f"{base}/pays_nothing/orders", _BROKEN_SECRET)
        text, as_json = await graded(*shop), await graded(*shop, "--json")
        nobody = await graded(f"{base}/x/webhooks", f"{base}/x/nothing", _BROKEN_SECRET)
    left = f"0 of 1 passed; {len(FAULTS) - 1} were not tried: mend this first\n"
    assert (text[0], text[1].endswith(left)) == (1, True), text
    assert (as_json[0], json.loads(as_json[1])["passed"]) == (1, False)
    assert (nobody[0], "404" in nobody[2]) == (2, True)


async def test_it_needs_the_secret_and_takes_it_from_the_environment() -> None:
    status, _, error = await graded("http://127.0.0.1:9", "http://127.0.0.1:9", "")
    assert (status, "set PAYINTENT_WEBHOOK_SECRET" in error) == (2, True)
