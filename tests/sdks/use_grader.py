"""Grade many shops concurrently; print the outcomes of each as JSON.

Arguments: the secret, and each shop's URL. Standard input, as JSON: for each shop, the test
merchant of its payments or null, and the checks to run or null for all.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace

import httpx
from payintent_cli.grading import money_checks, webhook_checks
from payintent_cli.grading.checks import CHECKS, grade
from payintent_cli.grading.events import Order
from payintent_cli.grading.judging import Check, Verdict
from payintent_cli.grading.service import Service
from payintent_cli.grading.shop import Shop
from payintent_cli.keys import Access
from payintent_cli.signing import read_secret

How = tuple[dict[str, str] | None, list[str] | None]
_, secret, *addresses = sys.argv
hows: list[How] = json.load(sys.stdin)
http = httpx.Client()
#: Their faults need two things at once: the shop is told when to wait for the second.
TOLD = {"race", "crash", "double_click_again"}


class ToldShop(Shop):
    def __init__(self, address: str) -> None:
        super().__init__(f"{address}/webhooks", f"{address}/orders", read_secret(secret), 0)
        self.address = address


def told(check: Check) -> Check:
    def run(shop: ToldShop, order: Order) -> Verdict:
        http.post(f"{shop.address}/trying/{check.name}").raise_for_status()
        return check.run(shop, order)

    return replace(check, run=run) if check.name in TOLD else check


def graded(address: str, how: How) -> list[dict[str, object]]:
    side, only = how
    with ExitStack() as stack:
        shop = stack.enter_context(ToldShop(address))
        service = stack.enter_context(Service(Access(**side))) if side else None
        found = grade(shop, service, only)
    assert found.stopped is None, found.stopped
    return [asdict(outcome) for outcome in found.outcomes]


CHECKS[:] = map(told, CHECKS)
checks_with_money = money_checks.checks_with
money_checks.checks_with = lambda service: [told(each) for each in checks_with_money(service)]
# The reports of the page are made with the real ones.
webhook_checks.BODY_BYTES, webhook_checks.PAYMENTS_AT_ONCE = 128 * 1024, 5
with ThreadPoolExecutor(len(addresses)) as graders:
    print(json.dumps(list(graders.map(graded, addresses, hows))))
