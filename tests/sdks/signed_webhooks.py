"""Webhooks signed by the official library, and the expected results of the SDKs."""

import base64
import hmac
import json
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW = 1_790_000_000
_AT = datetime(2026, 1, 2, tzinfo=UTC).isoformat().replace("+00:00", "Z")
_EVENT = {"type": "payment.expired", "timestamp": _AT, "data": {"payment": {
    **dict.fromkeys(("id", "status", "currency", "amount", "payer_uid"), "1"),
    "expired_at": _AT, "metadata": {},
}}}  # fmt: skip


def webhook(
    body: str = json.dumps(_EVENT), secret: str = SECRET, at: int = NOW, **changes: str | None
) -> dict[str, Any]:
    """Sign a webhook with the official library, and replace or remove headers."""
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), body)
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signature}
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "headers": {name: value for name, value in headers.items() if value is not None},
        "secrets": [SECRET],
        "now": NOW,
    }


def _forged() -> dict[str, Any]:
    """Build a webhook that is signed with an empty key, so that anyone can create it."""
    body = json.dumps(_EVENT)
    signature = hmac.digest(b"", f"msg_1.{NOW}.{body}".encode(), "sha256")
    return webhook(body, Webhook_Signature="v1," + base64.b64encode(signature).decode())


def webhook_cases() -> list[tuple[dict[str, Any], str]]:
    """Return webhooks with the expected type and id of the event, or the expected error."""
    good = webhook()
    signature = good["headers"]["Webhook-Signature"]
    return [
        (good, "payment.expired/msg_1"),
        (webhook(Webhook_Signature=f"v1a,x v1,AAAA {signature}"), "payment.expired/msg_1"),
        (webhook(secret=OTHER) | {"secrets": [SECRET, OTHER]}, "payment.expired/msg_1"),
        (webhook(json.dumps({"type": "payment.dreamt", "data": {"x": 1}})), "payment.dreamt/msg_1"),
        (webhook(json.dumps(_EVENT | {"id": "another"})), "payment.expired/msg_1"),
        (webhook(secret=OTHER), "WebhookSignatureError"),
        (good | {"body": base64.b64encode(b"{}").decode()}, "WebhookSignatureError"),
        (webhook(Webhook_Id="msg_2"), "WebhookSignatureError"),
        (webhook(Webhook_Signature="v1,%%%"), "WebhookSignatureError"),
        # aiohttp decodes bytes that are not UTF-8 as surrogates
        (webhook(Webhook_Id="msg_\udc80"), "WebhookSignatureError"),
        (webhook(Webhook_Signature="v1,\udc80"), "WebhookSignatureError"),
        (webhook(Webhook_Signature=signature.replace("v1,", "v2,")), "WebhookSignatureError"),
        (good | {"secrets": []}, "WebhookSignatureError"),
        (_forged() | {"secrets": [""]}, "misused"),
        (_forged() | {"secrets": [SECRET, "whsec_"]}, "misused"),
        (webhook(at=NOW - 301), "WebhookTimeError"),
        (webhook(at=NOW + 301), "WebhookTimeError"),
        (webhook(at=NOW - 299), "payment.expired/msg_1"),
        (webhook(Webhook_Timestamp="1e9"), "WebhookHeaderError"),
        (webhook(Webhook_Timestamp=None), "WebhookHeaderError"),
        (webhook(Webhook_Id=""), "WebhookHeaderError"),
        (webhook("[]"), "WebhookBodyError"),
        (webhook("no json"), "WebhookBodyError"),
        (webhook(json.dumps({"type": "payment.expired", "data": 1})), "WebhookBodyError"),
    ]
