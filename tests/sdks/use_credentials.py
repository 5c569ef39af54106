"""Use keys, URLs and secrets as read from files; print the sent values or the errors.

Standard input, as JSON: triples of a kind, a value of this kind, and a webhook. Argument: a URL.
"""

import io
import json
import logging
import sys
import traceback
from typing import Any

from payintent_sdk import Client, PayintentError, RetryPolicy, webhooks
from payintent_sdk.testing import WebhookReceiver

LOG = io.StringIO()


def use(kind: str, text: str, base: str, webhook: dict[str, Any]) -> str:
    if kind == "secret":
        with WebhookReceiver(text):
            pass
        body = webhook["body"].encode()
        return webhooks.verify(body, webhook["headers"], text, now_s=webhook["now"]).type
    key = text if kind == "key" else "sk_test_x"
    url = text if kind == "url" else base
    with Client(key, url, retries=RetryPolicy(tries=1)) as client:
        if kind == "id":
            return str(client.refunds.list(text))
        if kind == "idempotency key":
            order = {"amount": "1", "currency": "THB", "payer_uid": "buyer-1"}
            return client.payments.create(**order, idempotency_key=text).id
        assert text.strip() not in repr(client) + str(client.payments)
        return client.payments.get("pay_1").id


def capture_result(*arguments: Any) -> list[str]:
    try:
        return ["", use(*arguments)]
    except (PayintentError, TypeError, ValueError) as error:
        return [type(error).__name__, traceback.format_exc()]


logging.basicConfig(stream=LOG, level=logging.DEBUG)
cases = json.load(sys.stdin)
endings = [capture_result(kind, text, sys.argv[1], webhook) for kind, text, webhook in cases]
print(json.dumps([endings, LOG.getvalue()]))
