"""The card step of the hosted page: the gateway's card fields in a frame."""

from dataclasses import dataclass, field
from typing import Any

from payintent.api.content_security_policy import ScriptSources
from payintent.domain.web_origin import web_origin

#: As documented for Stripe.js: https://docs.stripe.com/security/guide
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
    client_secret: str = field(repr=False)  # allows to pay and to read the result

    @property
    def sources(self) -> ScriptSources:
        origin = web_origin(self.script_url)
        if origin is None:
            return ScriptSources()
        return _DOCUMENTED.get(origin) or ScriptSources((origin,), (origin,), (origin,))


def card_step(action: dict[str, Any]) -> CardStep | None:
    if action["type"] != "embedded_card":
        return None
    card: dict[str, str] = action["embedded_card"]
    return CardStep(card["script_url"], card["publishable_key"], card["client_secret"])
