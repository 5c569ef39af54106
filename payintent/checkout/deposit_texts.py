"""Sentences about a deposit session's progress, and about a network's usual duration."""

from collections.abc import Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any

from payintent.checkout.languages import Language

_MINUTE_S = 60


def describe_duration(seconds: int, language: Language) -> str:
    """Describe how long a network usually takes until a transfer is final."""
    minutes = round(seconds / _MINUTE_S)
    if seconds < _MINUTE_S:
        return language.t("usual_soon")
    return language.t("usual_minutes", minutes=minutes) if minutes > 1 else language.t("usual_one")


def describe_deposit(session: Mapping[str, Any], language: Language) -> str:
    """Describe what has arrived at the address, and what the buyer should do now."""
    sentences = [*_describe_receipts(session, language), *_describe_obstacle(session, language)]
    if any(transfer["state"] == "mismatch" for transfer in session["transactions"]):
        sentences.append(language.t("deposit_other_token", token=session["token"]["symbol"]))
    return reduce(partial(_join, language), sentences) if sentences else ""


def _join(language: Language, first: str, second: str) -> str:
    return language.t("sentences", first=first, second=second)


def _describe_receipts(session: Mapping[str, Any], language: Language) -> list[str]:
    """Count pending transfers as received, as the remaining amount does."""
    symbol, chain = session["token"]["symbol"], session["chain"]["name"]
    total = language.money(session["amount"], symbol)
    arrived = Decimal(session["received"]["amount"]) + Decimal(session["pending"]["amount"])
    pending, remaining = session["pending"]["amount"], session["remaining"]["amount"]
    if session["status"] == "awaiting_payment":
        return [language.t("deposit_none")] if session["payable"] else []
    if remaining == "0":
        return [language.t("deposit_enough", amount=total, chain=chain)]
    received = language.number(f"{arrived.normalize():f}")
    sentences = [language.t("deposit_received", received=received, total=total)]
    if pending != "0":
        amount = language.money(pending, symbol)
        sentences.append(language.t("deposit_pending", amount=amount))
    if session["payable"]:
        amount = language.money(remaining, symbol)
        sentences.append(language.t("deposit_rest", amount=amount))
    return sentences


def _describe_obstacle(session: Mapping[str, Any], language: Language) -> list[str]:
    """Explain why nothing should be sent. Nobody needs to know once the full amount arrived."""
    reason = session.get("unpayable_reason")
    if reason is None or session["remaining"]["amount"] == "0":
        return []
    if reason == "deadline_near":
        return [language.t("deposit_late")]
    if reason in {"chain_halted", "chain_not_watched"}:
        return [language.t("deposit_chain_away", chain=session["chain"]["name"])]
    return [language.t("wallet_ended")]
