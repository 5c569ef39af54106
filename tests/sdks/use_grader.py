"""Grade many shops concurrently; print the outcomes of each as JSON.

The arguments are the secret and each shop's URL. Standard input is JSON: for each shop, its test
merchant (null if it has no real payments) and the checks to run (null for all checks).
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

Configuration = tuple[dict[str, str] | None, list[str] | None]
_, secret, *addresses = sys.argv
configurations: list[Configuration] = json.load(sys.stdin)
http = httpx.Client()
#: Checks with concurrent faults: the grader announces them, so that the shop waits for them.
ANNOUNCED = {"race", "crash", "double_click_again"}


class AnnouncedShop(Shop):
    def __init__(self, address: str) -> None:
        super().__init__(f"{address}/webhooks", f"{address}/orders", read_secret(secret), 0)
        self.address = address


def announce(check: Check) -> Check:
    def run(shop: AnnouncedShop, order: Order) -> Verdict:
        http.post(f"{shop.address}/announce/{check.name}").raise_for_status()
        return check.run(shop, order)

    return replace(check, run=run) if check.name in ANNOUNCED else check


def grade_shop(address: str, configuration: Configuration) -> list[dict[str, object]]:
    side, only = configuration
    with ExitStack() as stack:
        shop = stack.enter_context(AnnouncedShop(address))
        service = stack.enter_context(Service(Access(**side))) if side else None
        result = grade(shop, service, only)
    assert result.stopped is None, result.stopped
    return [asdict(outcome) for outcome in result.outcomes]


CHECKS[:] = map(announce, CHECKS)
checks_with_money = money_checks.checks_with
money_checks.checks_with = lambda service: [announce(each) for each in checks_with_money(service)]
# Smaller values are faster. The reports on the documentation page use the real values.
webhook_checks.BODY_BYTES, webhook_checks.PAYMENTS_AT_ONCE = 128 * 1024, 5
with ThreadPoolExecutor(len(addresses)) as graders:
    print(json.dumps(list(graders.map(grade_shop, addresses, configurations))))
