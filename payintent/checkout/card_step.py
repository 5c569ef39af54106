"""The hosted page's card step: the gateway's own fields in a frame, and their origins."""

from dataclasses import dataclass, field
from typing import Any

from payintent.api.content_security_policy import ScriptSources
from payintent.domain.web_origin import web_origin

#: What Stripe documents for Stripe.js: https://docs.stripe.com/security/guide
_STRIPE = ScriptSources(
    scripts=("https://js.stripe.com", "https://*.js.stripe.com"),
    frames=("https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"),
    connections=("https://api.stripe.com",),
)
_DOCUMENTED = {"https://js.stripe.com": _STRIPE}


@dataclass(frozen=True, slots=True)
class CardStep:
    script_url: str
    publishable_key: str
    client_secret: str = field(repr=False)  # its holder may pay, and read the result

    @property
    def sources(self) -> ScriptSources:
        place = web_origin(self.script_url)
        if place is None:
            return ScriptSources()
        return _DOCUMENTED.get(place) or ScriptSources((place,), (place,), (place,))


def card_step(action: dict[str, Any]) -> CardStep | None:
    if action["type"] != "embedded_card":
        return None
    card: dict[str, str] = action["embedded_card"]
    return CardStep(card["script_url"], card["publishable_key"], card["client_secret"])
