"""The differences between gateways. They select an adapter's tests before it is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest


class Call(StrEnum):
    """An operation that may send a request to the gateway."""

    CREATE = "create"
    CLOSE = "close"
    INQUIRE = "inquire"
    REFUND = "refund"
    INQUIRE_REFUND = "inquire_refund"


class Scenario(StrEnum):
    """Events at a gateway that differ from a normal payment. `harness.py` has a hook for each."""

    CANCELS = "cancels"  # the buyer cancels on the page
    PAYS_LESS = "pays_less"
    PAYS_MORE = "pays_more"
    PAYS_LATE = "pays_late"  # after the deadline
    GOES_BACK = "goes_back"  # the buyer leaves the page, comes back and pays
    DASHBOARD_REFUND = (
        "dashboard_refund"  # the merchant refunds at the gateway, without the service
    )
    UNDECIDED = "undecided"  # an authentic response with an undocumented state


@dataclass(kw_only=True)
class Traits:
    """The capabilities of an adapter and its gateway. The defaults describe a typical gateway."""

    action: str = "redirect"  # the buyer's next step, as in the contract's `NextAction`
    uses_http: bool = True  # otherwise, all operations are local, and `faults` is None
    #: Operations that use `faults`. The rest must work if the gateway is unreachable.
    calls: frozenset[Call] = field(default_factory=lambda: frozenset(Call))
    creates_once: bool = True  # the same id gives the same reference
    found_by_our_id: bool = True  # a session is found without a reference; otherwise Unknown
    inquiry_opens: bool = False  # an inquiry by our id opens the session, which is then OPEN
    #: Scenarios that cannot occur at the gateway or its counterpart, with the reasons.
    cannot: Mapping[Scenario, str] = field(default_factory=dict[Scenario, str])
    ends_on_cancel: bool = True  # a buyer's cancellation ends the session; otherwise it stays OPEN
    #: A refund is found without the gateway's reference; otherwise ABSENT until it is sent again.
    finds_unreferenced_refunds: bool = True
    ends_on_decline: bool = True  # otherwise, the buyer may retry: ATTEMPTED by callback, then OPEN
    declines: bool = True  # payments can be declined
    can_close: bool = True  # otherwise, a close only inquires, and an open session stays open
    makes_callbacks: bool = True
    reports_currency: bool = True  # in callbacks; `restate` can change it
    reports_decimals: bool = True  # amounts are decimal strings, which can have too many digits
    makes_refund_callbacks: bool = True
    refunds_parts: bool = True  # otherwise, only full refunds
    refunds_again: bool = True  # repeated requests with an id create one refund
    refunds_at_once: bool = True  # otherwise, a successful refund is PENDING until `settle_refund`
    knows_remainder: bool = True  # otherwise, only the core limits refunds to the captured amount
    finds_refunds: bool = True  # an unknown refund is ABSENT; otherwise Unknown
    pending_refunds: bool = True  # a refund can be pending, and `settle_refund` decides it
    disputes: bool = False  # banks dispute payments, and callbacks report that
    #: Credentials that an account check can prove wrong.
    checked_credentials: frozenset[str] = frozenset()
    declines_refunds: bool = True  # a refund within the remainder can be declined


_BY_CARD = "a card pays the amount on the page"
_SIMULATOR_CANNOT = {
    Scenario.PAYS_LESS: "its cards pay the amount or more",
    Scenario.PAYS_LATE: "at the kit's time scale, its late captures take an hour and a half",
    Scenario.UNDECIDED: "the protocol is ours, and documents every status",
}

TRAITS = {
    "2c2p": Traits(
        found_by_our_id=False,  # an unpaid token looks like an unknown token
        can_close=False,
        makes_refund_callbacks=False,
        finds_unreferenced_refunds=False,  # its list does not contain our ids
        disputes=True,
        checked_credentials=frozenset(
            {
                *("merchant_id", "secret_key", "merchant_private_key", "gateway_public_key"),
                "utc_offset",
            }
        ),
    ),
    "ecpay": Traits(
        cannot={
            Scenario.CANCELS: "the page has no button; ECPay does not notice when a buyer leaves",
            **dict.fromkeys((Scenario.PAYS_LESS, Scenario.PAYS_MORE), _BY_CARD),
            Scenario.PAYS_LATE: "the emulator's page never closes",
        },
        calls=frozenset(Call) - {Call.CREATE},
        can_close=False,
        reports_currency=False,
        makes_refund_callbacks=False,
        refunds_again=False,
        pending_refunds=False,
        checked_credentials=frozenset({"merchant_id", "hash_key", "hash_iv"}),
    ),
    "example": Traits(
        cannot=_SIMULATOR_CANNOT, reports_decimals=False, checked_credentials=frozenset({"api_key"})
    ),
    "gateway_contract": Traits(
        cannot=dict.fromkeys(Scenario, "transfers on a chain have separate tests"),
        action="onchain_session",
        uses_http=False,
        creates_once=False,
        declines=False,
        can_close=False,
        makes_callbacks=False,
        makes_refund_callbacks=False,
        refunds_at_once=False,
        knows_remainder=False,
        declines_refunds=False,
    ),
    "simulator": Traits(
        cannot=_SIMULATOR_CANNOT,
        reports_decimals=False,
        checked_credentials=frozenset({"api_key"}),
    ),
    "stripe": Traits(
        cannot={
            Scenario.CANCELS: "the card form is on our page, and has no such button",
            **dict.fromkeys((Scenario.PAYS_LESS, Scenario.PAYS_MORE), _BY_CARD),
            Scenario.PAYS_LATE: "a cancelled intent cannot be paid",
        },
        action="embedded_card",
        ends_on_decline=False,
        inquiry_opens=True,
        reports_decimals=False,
        disputes=True,
        checked_credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
    ),
    "test": Traits(
        cannot={
            **dict.fromkeys(Scenario, "it is our own gateway, and responds from our own records"),
        },
        uses_http=False,
        reports_decimals=False,
        makes_refund_callbacks=False,
        disputes=True,
    ),
}


def where(rule: Callable[..., bool]) -> pytest.MarkDecorator:
    """Limit a test to the adapters and parameters for which a rule is true.

    The rule receives the traits, and the test's other parameters by name.
    """
    return pytest.mark.where.with_args(rule)


def applies(item: pytest.Item) -> bool:
    """Return whether all rules of a test are true for its adapter."""
    params: dict[str, Any] = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    provider = params.pop("harness", None)
    rules = [mark.args[0] for mark in item.iter_markers("where")]
    return provider is None or all(rule(TRAITS[provider], **params) for rule in rules)
