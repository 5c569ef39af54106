"""Grades many shops at the same time; prints the outcomes of each as JSON.

Arguments: the secret, and for each shop its address.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from payintent_cli.grading.checks import grade
from payintent_cli.grading.shop import Shop
from payintent_cli.signing import read_secret

_, secret, *addresses = sys.argv


def graded(address: str) -> list[dict[str, object]]:
    with Shop(f"{address}/webhooks", f"{address}/orders", read_secret(secret), 0) as shop:
        return [asdict(outcome) for outcome in grade(shop)]


with ThreadPoolExecutor(len(addresses)) as graders:
    print(json.dumps(list(graders.map(graded, addresses))))
