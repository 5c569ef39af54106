"""The wallet, deposit and card steps of the hosted page, and the URLs that they use."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial, reduce
from typing import Any, ClassVar
from urllib.parse import urlsplit

from payintent.chains.store import TEST_CHAIN
from payintent.checkout.context import CheckoutContext
from payintent.checkout.languages import Language
from payintent.checkout.static_files import SCRIPT_CHECK
from payintent.core import ids
from payintent.core.addresses import parse_web_origin
from payintent.core.errors import RefusedError
from payintent.http.middleware import ScriptSources
from payintent.http.pages.static_files import InlineBlock
from payintent.onchain.wallet_sessions import get_session_view
from payintent.runtime.settings import Settings

_OWN_API = "/v1"
_DECODED_CALL = frozenset({"function", "args"})


@dataclass(frozen=True, slots=True)
class WalletStep:
    session: dict[str, Any]  # as returned by `GET /onchain/sessions/{session_id}`
    url: str  # of the session; relative if the page and the API share an origin

    @property
    def is_detected(self) -> bool:
        """Whether the exact payment has been detected. The method can then no longer be changed."""
        return self.session["status"] in {"detected", "confirming"}

    @property
    def is_unpaid(self) -> bool:
        """Whether the session accepts a payment, and no payment has been detected yet."""
        return self.session["payable"] and self.session["status"] == "awaiting_payment"

    @property
    def accepts_payment(self) -> bool:
        return self.session["payable"]

    @property
    def script_session(self) -> dict[str, Any]:
        """The session without the decoded calls, which the page's scripts do not read."""
        steps = [
            {name: value for name, value in step.items() if name not in _DECODED_CALL}
            for step in self.session["steps"]
        ]
        return self.session | {"steps": steps}


class DepositStep(WalletStep):
    """The step for a session that is paid by transfers to its address."""

    @property
    def is_detected(self) -> bool:
        """Whether a transfer of any token has been detected."""
        return bool(self.session["transactions"])

    @property
    def accepts_payment(self) -> bool:
        """Whether the buyer should send more. Otherwise, the page hides the address."""
        return self.session["payable"] and self.session["remaining"]["amount"] != "0"

    @property
    def is_test(self) -> bool:
        return self.session["chain"]["slug"] == TEST_CHAIN

    @property
    def state(self) -> str:
        """A string by which `deposit.js` detects that the step's content has changed."""
        names = ("received", "pending", "remaining")
        amounts = [self.session[name]["amount_smallest_unit"] for name in names]
        reason = self.session.get("unpayable_reason", "")
        return ",".join([*amounts, reason, str(len(self.session["transactions"]))])


async def wallet_step(context: CheckoutContext, action: dict[str, Any]) -> WalletStep | None:
    """Return the wallet or deposit step, or None if the next action is not on a chain.

    Also returns None if the session has ended. The page then shows the waiting step.
    """
    if action["type"] != "onchain_session":
        return None
    session_id: str = action["onchain_session"]["session_id"]
    try:
        session = await get_session_view(
            context.database, ids.parse_id(ids.SESSION, session_id), context.wallet_handoff
        )
    except RefusedError:
        return None
    url = f"{api_url(context.settings)[0]}/onchain/sessions/{session_id}"
    return DepositStep(session, url) if "deposit_address" in session else WalletStep(session, url)


def api_url(settings: Settings) -> tuple[str, str]:
    """Return the API's base URL for the page, and its origin if the page has a different origin."""
    if not settings.checkout_base:  # the page and the API share an origin
        return _OWN_API, ""
    api = parse_web_origin(settings.api_base)
    if api is None or api == parse_web_origin(settings.checkout_base):
        return urlsplit(settings.api_base).path.rstrip("/"), ""
    return settings.api_base.rstrip("/"), api


#: Documented at https://docs.stripe.com/security/guide
_STRIPE_SOURCES = ScriptSources(
    scripts=("https://js.stripe.com", "https://*.js.stripe.com"),
    frames=("https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"),
    connections=("https://api.stripe.com",),
)
_DOCUMENTED_SOURCES = {"https://js.stripe.com": _STRIPE_SOURCES}


@dataclass(frozen=True, slots=True)
class CardStep:
    script_url: str
    publishable_key: str
    client_secret: str = field(repr=False)  # anyone who has it can pay and read the result
    script_check: ClassVar[InlineBlock] = SCRIPT_CHECK

    @property
    def sources(self) -> ScriptSources:
        origin = parse_web_origin(self.script_url)
        if origin is None:
            return ScriptSources()
        sources = _DOCUMENTED_SOURCES.get(origin) or ScriptSources((origin,), (origin,), (origin,))
        return replace(sources, inline_hashes=(SCRIPT_CHECK.csp_source,))


def card_step(action: dict[str, Any]) -> CardStep | None:
    if action["type"] != "embedded_card":
        return None
    card: dict[str, str] = action["embedded_card"]
    return CardStep(card["script_url"], card["publishable_key"], card["client_secret"])


def describe_deposit(session: Mapping[str, Any], language: Language) -> str:
    """Describe the transfers to the address, and the buyer's next step."""
    sentences = [*_describe_receipts(session, language), *_describe_obstacle(session, language)]
    if any(transfer["state"] == "mismatch" for transfer in session["transactions"]):
        sentences.append(language.t("deposit_other_token", token=session["token"]["symbol"]))
    return reduce(partial(_join, language), sentences) if sentences else ""


def _join(language: Language, first: str, second: str) -> str:
    return language.t("sentences", first=first, second=second)


def _describe_receipts(session: Mapping[str, Any], language: Language) -> list[str]:
    """Describe the received amount, which includes pending transfers."""
    symbol, chain = session["token"]["symbol"], session["chain"]["name"]
    total = language.money(session["amount"], symbol)
    arrived = Decimal(session["received"]["amount"]) + Decimal(session["pending"]["amount"])
    pending, remaining = session["pending"]["amount"], session["remaining"]["amount"]
    if session["status"] == "awaiting_payment":
        return [language.t("deposit_none")] if session["payable"] else []
    if remaining == "0":
        return [language.t("deposit_enough", amount=total, chain=chain)]
    received = language.money(f"{arrived.normalize():f}", symbol)
    sentences = [language.t("deposit_received", received=received, total=total)]
    if pending != "0":
        amount = language.money(pending, symbol)
        sentences.append(language.t("deposit_pending", amount=amount))
    if session["payable"]:
        amount = language.money(remaining, symbol)
        sentences.append(language.t("deposit_rest", amount=amount))
    return sentences


def _describe_obstacle(session: Mapping[str, Any], language: Language) -> list[str]:
    """Explain why nothing should be sent, unless the full amount has arrived."""
    reason = session.get("unpayable_reason")
    if reason is None or session["remaining"]["amount"] == "0":
        return []
    if reason == "deadline_near":
        is_unpaid = session["status"] == "awaiting_payment"
        keys = ("deposit_late",) if is_unpaid else ("deposit_late", "deposit_refund")
        return [language.t(key) for key in keys]
    if reason in {"chain_halted", "chain_not_watched"}:
        return [language.t("deposit_chain_away", chain=session["chain"]["name"])]
    return [language.t("wallet_ended")]
