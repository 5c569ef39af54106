"""The events that localstripe does not send, signed like Stripe's and repeated until received."""

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass, field

from payintent_sandbox.emulators.clock import ScaledClock
from payintent_sandbox.emulators.notifier import Notifier
from payintent_sandbox.emulators.stripe.model import Json

API_VERSION = "2026-10-28.endive"
RETRY_WAITS_S = (0.5, 2, 10, 60)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL that receives events, and the secret that signs them."""

    url: str
    secret: str = field(repr=False)


class Events:
    """Sends events to `endpoint`, if it is set, while its notifier runs."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.notifier = Notifier(ScaledClock(), RETRY_WAITS_S)

    def send(self, kind: str, about: Json) -> None:
        """Send an event about an object's current state, in the background."""
        event = {
            "id": f"evt_{secrets.token_hex(12)}",
            "object": "event",
            "api_version": API_VERSION,
            "created": int(time.time()),
            "data": {"object": about},
            "livemode": False,
            "type": kind,
        }
        if self.endpoint is not None:
            body = json.dumps(event).encode()
            self.notifier.clock.start(self._deliver(self.endpoint, body))

    async def _deliver(self, endpoint: Endpoint, body: bytes) -> None:
        async def attempt(_: int) -> bool:
            headers = {
                "Content-Type": "application/json; charset=utf-8",
                "Stripe-Signature": signature(endpoint.secret, body, int(time.time())),
            }
            return (await self.notifier.post(endpoint.url, body, headers)).is_success

        await self.notifier.send(attempt)


def signature(secret: str, body: bytes, timestamp: int) -> str:
    """Return the value of the `Stripe-Signature` header."""
    content = f"{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"
