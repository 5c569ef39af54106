"""What gateways report of money without a request of ours: refunds made there, fraud warnings."""

from dataclasses import dataclass

from payintent.domain.gateway import GatewayRefundState


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRefund:
    """A refund that was made at the gateway itself, such as in its dashboard.

    Amounts are in our minor units. It is counted once per `reference`, however often and by
    whatever way it is reported, and never if that is the reference of a refund that we requested.
    """

    reference: str  # the gateway's own id of the refund
    capture: str  # the reference of the refunded capture
    state: GatewayRefundState
    amount_minor: int
    currency: str
    detail: str = ""  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudWarning:
    """An issuer's warning that a payment is fraudulent; a dispute may follow."""

    reference: str  # the gateway's own, unique within the account
    capture: str  # the reference of the capture
    reason: str = ""  # the gateway's own reason code
