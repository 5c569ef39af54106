"""Middleware in front of localstripe: API keys, idempotency, refund limits and more events."""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler
from localstripe.resources import store

from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.events import Events
from payintent_sandbox.emulators.stripe.intents import check_intent, store_details
from payintent_sandbox.emulators.stripe.model import AccountRecords, Json, RefusalError, missing
from payintent_sandbox.emulators.stripe.refunds import announce_refund, check_refund

_OK = 200
_NAMES = re.compile(r"\b(?:pi|re)_[0-9A-Za-z]+")
_CANCEL = re.compile(r"/v1/payment_intents/\w+/cancel")
_DECIDED = {"succeeded": "refund.updated", "failed": "refund.failed"}
_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


@dataclass(frozen=True, slots=True)
class _Done:
    """The request and response for an idempotency key.

    The response is None until the request has ended.
    """

    order: bytes
    answer: web.Response | None = None


@dataclass(slots=True)
class ApiFront:
    """Handles every API request before localstripe does, and localstripe's response afterwards."""

    records: AccountRecords
    events: Events
    disputes: Disputes
    _done: dict[tuple[str, str], _Done] = field(default_factory=dict[tuple[str, str], _Done])

    async def pass_on(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests that Stripe would reject; pass others to localstripe, once per key."""
        secret = read_secret(request)
        self.records.check(secret)
        body = await request.read()
        for name in _NAMES.findall(request.path_qs) + _NAMES.findall(body.decode(errors="replace")):
            self.records.check_owner(secret, name)
        key = request.headers.get("Idempotency-Key")
        if request.method != "POST" or key is None:
            return await self._do(secret, request, handler)
        return await self._do_once(secret, key, request, handler)

    async def _do_once(
        self, secret: str, key: str, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        order = request.path.encode() + b"\n" + await request.read()
        earlier = self._done.get((secret, key))
        if earlier and earlier.order != order:
            message = "Keys for idempotent requests can only be used with the same parameters."
            raise RefusalError(400, message, type="idempotency_error")
        if earlier and earlier.answer is None:
            raise RefusalError(409, "The key is in use.", code="idempotency_key_in_use")
        if earlier and earlier.answer is not None:
            headers = {"Idempotent-Replayed": "true"}
            return web.Response(
                body=earlier.answer.body, headers=headers, content_type="application/json"
            )
        self._done[secret, key] = _Done(order)
        answer: web.StreamResponse | None = None
        try:
            answer = await self._do(secret, request, handler)
            return answer
        finally:
            del self._done[secret, key]
            if isinstance(answer, web.Response) and answer.status == _OK:
                self._done[secret, key] = _Done(order, answer)

    async def _do(self, secret: str, request: web.Request, handler: Handler) -> web.StreamResponse:
        left, details = 0, dict[str, Any]()
        if request.method == "POST" and request.path == "/v1/refunds":
            left = check_refund(self.records, self.disputes, dict(await request.post()))
        is_intent = request.method == "POST" and request.path == "/v1/payment_intents"
        if is_intent:
            details = await check_intent(request)
        answer = await handler(request)
        if request.method != "POST" or not isinstance(answer, web.Response):
            return answer
        if answer.status == _OK and isinstance(answer.body, bytes):
            content: Json = json.loads(answer.body)
            self.records.owners[content["id"]] = secret
            if content["object"] == "refund":
                return self._refunded(content, left)
            if is_intent:
                return store_details(content, details)
            if _CANCEL.fullmatch(request.path):
                self.events.send("payment_intent.canceled", content)
        return answer

    def _refunded(self, refund: Json, left: int) -> web.Response:
        stored = _objects[f"refund:{refund['id']}"]
        # Without an amount, localstripe refunds the whole payment instead of the remainder.
        stored.amount = min(refund["amount"], left)
        return web.json_response(announce_refund(self.records, self.events, stored))

    def decide(self, refund_id: str, status: str) -> Json:
        """Decide a pending refund as a bank does, and send the two events that Stripe sends."""
        refund = _objects.get(f"refund:{refund_id}")
        if refund is None:
            raise missing(refund_id)
        if status not in _DECIDED:
            raise RefusalError(400, "status must be succeeded or failed", param="status")
        refund.status = status
        content: Json = refund._export()  # noqa: SLF001 - localstripe has no public method
        self.events.send(_DECIDED[status], content)
        self.events.send("charge.refund.updated", content)
        return content


def keep_in_memory() -> None:
    """Stop localstripe from writing its objects to a file that all users of the machine share."""
    cast("Any", store).dump_to_disk = lambda: None


def read_secret(request: web.Request) -> str:
    """Return the secret key of a request, or "" if it is missing."""
    scheme, _, word = request.headers.get("Authorization", "").partition(" ")
    if scheme == "Basic":
        try:
            return base64.b64decode(word).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return word if scheme == "Bearer" else ""
