"""The response codes of 2C2P as data: what each means for a payment, and for a refund.

A code that is not listed means `OutcomeUnknown`, and the gateway is asked again.
"""

from payintent.domain.gateway import (
    DisputedFunds,
    DisputeState,
    GatewayRefundState,
    GatewaySessionState,
)
from payintent.domain.payment import FailureReason

OK = "0000"
NOT_FOUND = "2002"  # no buyer has tried to pay: a token that waits for its buyer looks the same
SOFT_DECLINED = "0004"  # the buyer is led through 3-D Secure and tries again
INVOICE_EXISTS = "9015"

#: An order answered with one of these may exist; any other refusal made nothing.
UNSETTLED = frozenset(
    {INVOICE_EXISTS, "0001", "0999", "2001", "2003", "4009", "5002", "9038", "9041"}
    | {f"99{last}" for last in range(90, 100)}
)

_DECLINED = """
    4001 4002 4004 4005 4007 4008 4014 4015 4018 4033 4034 4035 4036 4037 4038 4039 4041 4043
    4044 4051 4052 4053 4054 4055 4057 4059 4061 4062 4065 4081 5007
"""
_FAILED = """
    4003 4006 4012 4013 4019 4020 4021 4022 4023 4030 4031 4040 4042 4050 4091 4096 4099
    5003 5004 5006 5008 5014 9035
"""

#: Why a payment ended without money, as the reasons that merchants read.
FAILURES: dict[str, FailureReason] = (
    dict.fromkeys(_DECLINED.split(), FailureReason.DECLINED)
    | dict.fromkeys(_FAILED.split(), FailureReason.UNKNOWN)
    | {SOFT_DECLINED: FailureReason.DECLINED}
)

# What became of the money afterwards (settled, refunded, charged back) does not change that it was
# taken. Left out are 4010, 4011, 4016 and 4032: approvals of a kind that an operator must look at.
STATES: dict[str, GatewaySessionState] = dict.fromkeys(FAILURES, GatewaySessionState.DECLINED) | {
    OK: GatewaySessionState.CAPTURED,
    "4110": GatewaySessionState.CAPTURED,  # settled
    "4120": GatewaySessionState.CAPTURED,  # refunded
    "4121": GatewaySessionState.CAPTURED,  # refund rejected
    "4122": GatewaySessionState.CAPTURED,  # refund failed
    "4130": GatewaySessionState.CAPTURED,  # charged back
    "4131": GatewaySessionState.CAPTURED,  # chargeback rejected
    "4132": GatewaySessionState.CAPTURED,  # chargeback failed
    "0001": GatewaySessionState.AUTHORISING,  # pending
    "2001": GatewaySessionState.AUTHORISING,  # in progress
    "4009": GatewaySessionState.AUTHORISING,  # request in progress
    "0003": GatewaySessionState.CANCELLED,
    "4080": GatewaySessionState.CANCELLED,  # the buyer closed the page
    "5009": GatewaySessionState.CLOSED,  # expired
    "9020": GatewaySessionState.CLOSED,  # expired
    SOFT_DECLINED: GatewaySessionState.ATTEMPTED,
}

#: Disputes and whether the buyer's bank has the money. 4130 is published; what 4131 and 4132 mean
#: is to be confirmed with 2C2P (`docs/refunds.md`, "Disputed money").
DISPUTES: dict[str, tuple[DisputeState, DisputedFunds]] = {
    "4130": (DisputeState.OPEN, DisputedFunds.WITHDRAWN),
    "4131": (DisputeState.WON, DisputedFunds.REINSTATED),
    "4132": (DisputeState.WON, DisputedFunds.REINSTATED),
}

#: Result codes of the maintenance API.
DONE = "00"
NO_TRANSACTION = "16"
REFUND_PENDING = "42"

#: A payment that is not settled yet cannot be refunded, but the whole of it can be voided.
UNREFUNDABLE = frozenset({"12", "41"})

_REFUSED = """
    02 03 10 11 12 13 14 15 16 17 18 21 22 25 30 40 41 43 44 45 46 47 48 49 54 61 65 96 97
"""

#: The maintenance API understood and did nothing. What may be under way is not among them: 29 and
#: 50 to 53, 95, 98 and 99.
REFUSED = frozenset(_REFUSED.split())

#: The state of a transaction or a refund, where the request itself succeeded.
REFUND_STATES: dict[str, GatewayRefundState] = {
    "RF": GatewayRefundState.DONE,
    "V": GatewayRefundState.DONE,
    "RP": GatewayRefundState.PENDING,
    "RP2": GatewayRefundState.PENDING,
    "RP3": GatewayRefundState.PENDING,
    "VP": GatewayRefundState.PENDING,
    "REFUND_PENDING": GatewayRefundState.PENDING,
    "RFF": GatewayRefundState.DECLINED,
    "RR": GatewayRefundState.DECLINED,
    "RR1": GatewayRefundState.DECLINED,  # insufficient balance
    "RR2": GatewayRefundState.DECLINED,  # invalid bank information
    "RR3": GatewayRefundState.DECLINED,  # bank account mismatch
}
VOIDS = frozenset({"V", "VP"})
