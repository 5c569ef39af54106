"""Grades many shops; prints the outcomes of each as JSON.

Arguments: the secret, and for each shop its address.
"""

import json
import sys
from dataclasses import asdict

from payintent_cli.grading.checks import grade
from payintent_cli.grading.shop import Shop
from payintent_cli.signing import read_secret

_, secret, *addresses = sys.argv
graded = []
for address in addresses:
    with Shop(f"{address}/webhooks", f"{address}/orders", read_secret(secret), 0) as shop:
        graded.append([asdict(outcome) for outcome in grade(shop)])
print(json.dumps(graded))
