"""Where gateways differ: which tests of the kit an adapter has is known before it is opened."""

from collections.abc import Callable, Mapping
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


class Scenario(StrEnum):
    """What else may happen at a gateway; `harness.py` has a hook for each."""

    CANCELS = "cancels"  # the buyer cancels on the page
    PAYS_LESS = "pays_less"
    PAYS_MORE = "pays_more"
    PAYS_LATE = "pays_late"  # after the deadline
    GOES_BACK = "goes_back"  # the buyer leaves the page, comes back and pays
    DASHBOARD_REFUND = "dashboard_refund"  # the merchant refunds there, without us
    UNDECIDED = "undecided"  # an authentic answer with a state that no document lists


@dataclass(kw_only=True)
class Traits:
    """What an adapter and its gateway do; by default everything."""

    action: str = "redirect"  # what the buyer does next, as `NextAction` of the contract names it
    uses_http: bool = True  # else no operation leaves the process, and `faults` is None
    #: What goes out over `faults`; the others must work though nobody listens.
    calls: frozenset[Call] = field(default_factory=lambda: frozenset(Call))
    creates_once: bool = True  # the same id gives the same reference
    found_by_our_id: bool = True  # a session is found without a reference; else that is Unknown
    asking_opens: bool = False  # who asks for one by our id alone opens it: what is asked is OPEN
    #: Scenarios that the gateway, or its counterpart here, does not have, and why.
    cannot: Mapping[Scenario, str] = field(default_factory=dict[Scenario, str])
    ends_on_cancel: bool = True  # a buyer's cancel ends the session; else it stays OPEN
    #: A refund is found without the gateway's reference; else it is ABSENT until it is sent again.
    finds_unreferenced_refunds: bool = True
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


_BY_CARD = "a card pays the amount on the page"
_SIMULATOR_CANNOT = {
    Scenario.PAYS_LESS: "its cards pay the amount or more",
    Scenario.PAYS_LATE: "at the kit's time scale its late captures take an hour and a half",
    Scenario.UNDECIDED: "its wire is our own, so that every status of it is documented",
}

TRAITS = {
    "2c2p": Traits(
        found_by_our_id=False,  # an unpaid token sounds like one that was never made
        can_close=False,
        calls_back_refunds=False,
        finds_unreferenced_refunds=False,  # its list has no ids of ours
        disputes=True,
        tried_credentials=frozenset(
            {
                *("merchant_id", "secret_key", "merchant_private_key", "gateway_public_key"),
                "utc_offset",
            }
        ),
    ),
    "ecpay": Traits(
        cannot={
            Scenario.CANCELS: "the page has no such button, and leaving it tells ECPay nothing",
            **dict.fromkeys((Scenario.PAYS_LESS, Scenario.PAYS_MORE), _BY_CARD),
            Scenario.PAYS_LATE: "the emulator's page never closes",
        },
        calls=frozenset(Call) - {Call.CREATE},
        can_close=False,
        tells_currency=False,
        calls_back_refunds=False,
        refunds_again=False,
        pending_refunds=False,
        tried_credentials=frozenset({"merchant_id", "hash_key", "hash_iv"}),
    ),
    "example": Traits(
        cannot=_SIMULATOR_CANNOT, tells_decimals=False, tried_credentials=frozenset({"api_key"})
    ),
    "gateway_contract": Traits(
        cannot=dict.fromkeys(Scenario, "transfers on a chain have tests of their own"),
        action="onchain_session",
        uses_http=False,
        creates_once=False,
        declines=False,
        can_close=False,
        makes_callbacks=False,
        calls_back_refunds=False,
        refunds_at_once=False,
        knows_remainder=False,
        declines_refunds=False,
    ),
    "simulator": Traits(
        cannot=_SIMULATOR_CANNOT,
        tells_decimals=False,
        tried_credentials=frozenset({"api_key"}),
    ),
    "stripe": Traits(
        cannot={
            Scenario.CANCELS: "the card form is on our page, and has no such button",
            **dict.fromkeys((Scenario.PAYS_LESS, Scenario.PAYS_MORE), _BY_CARD),
            Scenario.PAYS_LATE: "an intent that we have cancelled takes no payment",
        },
        action="embedded_card",
        ends_on_decline=False,
        asking_opens=True,
        tells_decimals=False,
        disputes=True,
        tried_credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
    ),
    "test": Traits(
        cannot={
            **dict.fromkeys(Scenario, "it is ours, and answers from our own records"),
        },
        uses_http=False,
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
