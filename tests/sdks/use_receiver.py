"""Send webhooks from standard input to a receiver; print its responses and events."""

import base64
import json
import sys
from dataclasses import dataclass

import httpx
from payintent_sdk.testing import WebhookReceiver


@dataclass(frozen=True)
class Payment:
    id: str


request = json.load(sys.stdin)
statuses: list[int] = []
with WebhookReceiver(request["secrets"]) as receiver:
    for case in request["webhooks"]:
        body = base64.b64decode(case["body"])
        statuses.append(httpx.post(receiver.url, content=body, headers=case["headers"]).status_code)
    event = receiver.wait("payment.expired", Payment(request["payment"]))
    errors: list[str] = []
    for kind, payment in (("payment.failed", request["payment"]), ("payment.expired", "another")):
        try:
            receiver.wait(kind, Payment(payment), timeout_s=0.01)
        except TimeoutError as error:
            errors.append(str(error).partition(" within")[0])
    event_ids = [item.id for item in receiver.received]
    refused = len(receiver.refused)
print(
    json.dumps(
        {
            "statuses": statuses,
            "event_ids": event_ids,
            "refused": refused,
            "event_type": event.type,
            "errors": errors,
        }
    )
)
