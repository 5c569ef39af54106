"""Backend notifications: signed JWTs, repeated until the merchant responds with 200."""

import json

from payintent_sandbox.emulators.notifier import Notifier
from payintent_sandbox.emulators.twoc2p.envelope import sign
from payintent_sandbox.emulators.twoc2p.model import Invoice

RETRY_WAITS_S = (10, 60, 300, 900, 3_600)
_HEADERS = {"Content-Type": "application/json; charset=utf-8"}
_OK = 200


async def send_notice(notifier: Notifier, invoice: Invoice) -> None:
    """Notify the merchant of an invoice's state. Every attempt sends the same bytes."""
    content = json.dumps(invoice.view(notified=True)).encode()
    body = json.dumps({"payload": sign(content, invoice.account.secret_key)}).encode()

    async def attempt(_: int) -> bool:
        answer = await notifier.post(invoice.order.backendReturnUrl, body, _HEADERS)
        return answer.status == _OK

    await notifier.send(attempt)
