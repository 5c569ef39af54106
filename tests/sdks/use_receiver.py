"""Send webhooks from standard input to a receiver; print its responses, data and waits."""

import base64
import json
import sys
from dataclasses import dataclass

import httpx
from payintent_sdk.testing import WebhookReceiver


@dataclass(frozen=True)
class Payment:
    id: str


given = json.load(sys.stdin)
answers: list[int] = []
with WebhookReceiver(given["secrets"]) as receiver:
    for case in given["webhooks"]:
        body = base64.b64decode(case["body"])
        answers.append(httpx.post(receiver.url, content=body, headers=case["headers"]).status_code)
    found = receiver.wait("payment.expired", Payment(given["payment"]))
    said: list[str] = []
    for kind, payment in (("payment.failed", given["payment"]), ("payment.expired", "another")):
        try:
            receiver.wait(kind, Payment(payment), timeout_s=0.01)
        except TimeoutError as error:
            said.append(str(error).partition(" within")[0])
    kept = [item.id for item in receiver.received]
    refused = len(receiver.refused)
print(
    json.dumps(
        {
            "answers": answers,
            "kept": kept,
            "refused": refused,
            "found": found.type,
            "said": said,
        }
    )
)
