"""The server side of the payment element, which pays localstripe's intents with test cards."""

from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from localstripe.resources import store

from payintent_sandbox.emulators.stripe.events import Events
from payintent_sandbox.emulators.stripe.model import (
    CARDS,
    AccountRecords,
    Card,
    Json,
    RefusalError,
    missing,
)

_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id
_SHOWN = ("id", "object", "amount", "currency", "status", "client_secret")
_EXPIRES = {"card[exp_month]": "12", "card[exp_year]": "2040", "card[cvc]": "123"}
_MESSAGES = {
    "card_declined": "Your card was declined.",
    "expired_card": "Your card has expired.",
    "incorrect_cvc": "Your card's security code is incorrect.",
    "processing_error": "An error occurred while processing your card. Try again later.",
}


@dataclass(slots=True)
class Element:
    """The browser's operations, which need a client secret and a publishable key."""

    records: AccountRecords
    events: Events
    url: str  # of localstripe, which runs in this process
    http: aiohttp.ClientSession | None = None  # set while the application runs

    async def retrieve(self, publishable: str, client_secret: str) -> Json:
        """Return an intent's fields that the buyer may see."""
        return shown(await self._intent(publishable, client_secret))

    async def confirm(self, publishable: str, client_secret: str, number: str) -> Json:
        """Try to pay with a card; a decline sends an event, and the buyer may try again."""
        intent = await self._intent(publishable, client_secret)
        card = CARDS.get(number)
        if card is None:
            message = "Your card number is invalid. The sandbox accepts only the listed numbers."
            raise RefusalError(402, message, type="validation_error", code="invalid_number")
        if intent["status"] != "requires_payment_method":
            raise _unexpected(intent)
        if card.code:
            raise self._declined(intent, card)
        self.records.paid_with[intent["id"]] = card
        return shown(await self._charge(intent, card))

    async def authenticate(self, publishable: str, client_secret: str, *, success: bool) -> Json:
        """Finish 3-D Secure; a failed authentication counts as a declined attempt."""
        intent = await self._intent(publishable, client_secret)
        if intent["status"] != "requires_action":
            raise _unexpected(intent)
        form = {"client_secret": client_secret, "success": str(success).lower()}
        answered = await self._post(intent, f"/payment_intents/{intent['id']}/_authenticate", form)
        if not success:
            raise self._failed(answered, answered["last_payment_error"] | {"type": "card_error"})
        return shown(answered)

    async def leave(self, publishable: str, client_secret: str) -> Json:
        """Leave the bank's or wallet's page: the intent then requires a new payment method."""
        intent = await self._intent(publishable, client_secret)
        if intent["status"] != "requires_action":
            raise _unexpected(intent)
        stored = _objects[f"payment_intent:{intent['id']}"]
        stored.payment_method = stored.next_action = None
        error: Json = {
            "type": "invalid_request_error",
            "code": "payment_method_customer_decline",
            "message": "The buyer left without paying.",
        }
        raise self._failed(stored._export(), error)  # noqa: SLF001 - no public method

    async def _intent(self, publishable: str, client_secret: str) -> Json:
        intent_id = client_secret.partition("_secret_")[0]
        secret = self.records.owner(intent_id, publishable)
        intent = await self._ask("GET", secret, f"/payment_intents/{intent_id}")
        if intent["client_secret"] != client_secret:
            raise missing(intent_id)
        return intent

    async def _charge(self, intent: Json, card: Card) -> Json:
        path = f"/payment_intents/{intent['id']}"
        form = {"type": "card", "card[number]": card.number} | _EXPIRES
        method = await self._post(intent, "/payment_methods", form)
        await self._post(intent, path, {"payment_method": method["id"]})
        return await self._post(intent, f"{path}/confirm", {})

    def _declined(self, intent: Json, card: Card) -> RefusalError:
        error: Json = {
            "type": "card_error",
            "code": card.code,
            "message": _MESSAGES[card.code or ""],
        }
        if card.decline_code:
            error["decline_code"] = card.decline_code
        return self._failed(intent, error)

    def _failed(self, intent: Json, error: Json) -> RefusalError:
        after = intent | {"last_payment_error": error}
        self.events.send("payment_intent.payment_failed", after)
        return relayed(402, error | {"payment_intent": shown(after)})

    async def _post(self, intent: Json, path: str, form: dict[str, str]) -> Json:
        return await self._ask("POST", self.records.owners[intent["id"]], path, form)

    async def _ask(
        self, method: str, secret: str, path: str, form: dict[str, str] | None = None
    ) -> Json:
        assert self.http is not None  # noqa: S101 - the application is running
        headers = {"Authorization": f"Bearer {secret}"}
        url = f"{self.url}/v1{path}"
        async with self.http.request(method, url, data=form, headers=headers) as answer:
            content: dict[str, Any] = await answer.json()
            if "error" in content:
                raise relayed(answer.status, content["error"])
            return content


def shown(intent: Json) -> Json:
    """Return an intent's fields that the buyer may see."""
    return {name: intent[name] for name in _SHOWN}


def relayed(status: int, error: Json) -> RefusalError:
    """Make a `RefusalError` from an existing error object."""
    words = {name: value for name, value in error.items() if name != "message"}
    return RefusalError(status, str(error.get("message", "")), **words)


def _unexpected(intent: Json) -> RefusalError:
    message = f"This payment is {intent['status']} and cannot be paid."
    code = "payment_intent_unexpected_state"
    return RefusalError(400, message, code=code, payment_intent=shown(intent))
