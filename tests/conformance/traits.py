"""Where gateways differ: which tests of the kit an adapter has is known before it is opened."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest


class Call(StrEnum):
    """An operation that may go out to the gateway."""

    CREATE = "create"
    CLOSE = "close"
    INQUIRE = "inquire"
    REFUND = "refund"
    INQUIRE_REFUND = "inquire_refund"


@dataclass(kw_only=True)
class Traits:
    """What an adapter and its gateway do; by default everything."""

    action: str = "redirect"  # what the buyer does next, as `NextAction` of the contract names it
    over_http: bool = True  # else no operation leaves the process, and `faults` is None
    #: What goes out over `faults`; the others must work though nobody listens.
    calls: frozenset[Call] = field(default_factory=lambda: frozenset(Call))
    creates_once: bool = True  # the same id gives the same reference
    found_by_our_id: bool = True  # a session is found without a reference; else that is Unknown
    asking_opens: bool = False  # who asks for one by our id alone opens it: what is asked is OPEN
    ends_on_decline: bool = True  # else the buyer may try again: ATTEMPTED by callback, then OPEN
    declines: bool = True  # a buyer can be declined at all
    can_close: bool = True  # else a close only asks, and an open session stays open
    makes_callbacks: bool = True
    tells_currency: bool = True  # in callbacks; and `restated` can put another one in
    tells_decimals: bool = True  # amounts as decimal texts, so that there can be too many digits
    calls_back_refunds: bool = True
    refunds_parts: bool = True  # else all goes back, or nothing
    refunds_again: bool = True  # one refund for one id, however often it is asked for
    refunds_at_once: bool = True  # else what comes to DONE is PENDING until `settle_refund`
    knows_remainder: bool = True  # else the core alone sees that no more goes back than came in
    finds_refunds: bool = True  # a refund that never was is ABSENT; else that is Unknown
    pending_refunds: bool = True  # a refund can be pending, and `settle_refund` decides it
    disputes: bool = False  # banks ask money back, and callbacks tell of it
    #: Credentials whose being wrong a check of the account shows.
    tried_credentials: frozenset[str] = frozenset()
    declines_refunds: bool = True  # a refund can be declined that is within the remainder


TRAITS = {
    "2c2p": Traits(
        found_by_our_id=False,  # an unpaid token sounds like one that was never made
        can_close=False,
        calls_back_refunds=False,
        refunds_again=False,
        disputes=True,
        tried_credentials=frozenset(
            {
                *("merchant_id", "secret_key", "merchant_private_key", "gateway_public_key"),
                "utc_offset",
            }
        ),
    ),
    "ecpay": Traits(
        calls=frozenset(Call) - {Call.CREATE},
        can_close=False,
        tells_currency=False,
        calls_back_refunds=False,
        refunds_again=False,
        pending_refunds=False,
        tried_credentials=frozenset({"merchant_id", "hash_key", "hash_iv"}),
    ),
    "example": Traits(tells_decimals=False, tried_credentials=frozenset({"api_key"})),
    "gateway_contract": Traits(
        action="onchain_session",
        over_http=False,
        creates_once=False,
        declines=False,
        can_close=False,
        makes_callbacks=False,
        calls_back_refunds=False,
        refunds_at_once=False,
        knows_remainder=False,
        declines_refunds=False,
    ),
    "simulator": Traits(tells_decimals=False, tried_credentials=frozenset({"api_key"})),
    "stripe": Traits(
        action="embedded_card",
        ends_on_decline=False,
        asking_opens=True,
        tells_decimals=False,
        disputes=True,
        tried_credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
    ),
    "test": Traits(
        over_http=False,
        tells_decimals=False,
        calls_back_refunds=False,
        disputes=True,
    ),
}


def where(rule: Callable[..., bool]) -> pytest.MarkDecorator:
    """Let a test exist only for the adapters, and the parameters, that the rule is true of.

    The rule takes the traits, and the test's other parameters by name.
    """
    return pytest.mark.where.with_args(rule)


def applies(item: pytest.Item) -> bool:
    """Tell whether a test was made for an adapter that all of its rules are true of."""
    params: dict[str, Any] = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    provider = params.pop("harness", None)
    rules = [mark.args[0] for mark in item.iter_markers("where")]
    return provider is None or all(rule(TRAITS[provider], **params) for rule in rules)
