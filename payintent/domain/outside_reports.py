"""Reports of gateways that are unrelated to our requests: outside refunds and fraud warnings."""

from dataclasses import dataclass

from payintent.domain.gateway import GatewayRefundState


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRefund:
    """A refund that was made at the gateway itself, for example in its dashboard.

    The amount is in our minor units. It counts once per `reference`, however often it is reported,
    and not at all if we requested the refund with this reference.
    """

    reference: str  # assigned by the gateway
    capture: str  # the reference of the refunded capture
    state: GatewayRefundState
    amount_minor: int
    currency: str
    detail: str = ""  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudWarning:
    """An issuer's warning that a payment is fraudulent; a dispute may follow."""

    reference: str  # assigned by the gateway, unique within the account
    capture: str  # the reference of the capture
    reason: str = ""  # the gateway's reason code
