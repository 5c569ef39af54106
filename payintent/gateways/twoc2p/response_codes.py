"""The meanings of 2C2P's response codes for payments and refunds.

Each published payment code has exactly one meaning. Any other code results in `OutcomeUnknown`, and
the payment is queried again.
"""

from payintent.gateways.port import (
    DisputedFunds,
    DisputeState,
    FailureReason,
    GatewayRefundState,
    GatewaySessionState,
)

OK = "0000"
SOFT_DECLINED = "0004"  # the buyer must authenticate with 3-D Secure and retry
INVOICE_EXISTS = "9015"

#: No payment was attempted. A payment token may nevertheless exist.
NOT_FOUND = frozenset({"2002", "4071", "4140"})

#: Rejections that do not prove that the order does not exist.
UNSETTLED = frozenset(
    {INVOICE_EXISTS, "0001", "0999", "2001", "2003", "4009", "4094", "5002", "5005", "9038", "9041"}
    | {f"99{suffix}" for suffix in range(90, 100)}
)

_DECLINED = """
    4001 4002 4004 4005 4007 4008 4014 4015 4018 4033 4034 4035 4036 4037 4038 4039 4041 4043
    4044 4051 4052 4053 4054 4055 4056 4057 4058 4059 4060 4061 4062 4063 4065 4066 4067 4075
    4076 4077 4078 4081 5007 5013
"""
_FAILED = """
    4003 4006 4012 4013 4019 4020 4021 4022 4023 4024 4025 4026 4027 4028 4029 4030 4031 4040
    4042 4050 4064 4068 4072 4073 4086 4087 4088 4089 4090 4091 4092 4093 4094 4096 4098 4099
    5003 5004 5006 5008 5011 5012 5014 5998 6012 7012 9035
"""

#: Failed payments, with the reasons shown to merchants.
FAILURES: dict[str, FailureReason] = (
    dict.fromkeys(_DECLINED.split(), FailureReason.DECLINED)
    | dict.fromkeys(_FAILED.split(), FailureReason.UNKNOWN)
    | {SOFT_DECLINED: FailureReason.DECLINED}
)

#: Captures that differ from the order: a different amount, a late payment, or a partial or special
#: approval. 2C2P does not document the meaning of `amount` in these cases, so an operator must
#: decide.
DEVIATIONS = {
    "4010": "partial amount approved",
    "4011": "approved as VIP",
    "4016": "approved with an update of track 3",
    "4032": "completed in part",
    "5015": "the buyer paid more",
    "5016": "the buyer paid less",
    "5017": "the buyer paid after the deadline",
}

_CAPTURED = """
    0000 4045 4110
    4120 4121 4122
    4130 4131 4132
"""  # paid or settled, even if later refunded or charged back
_CANCELLED = "0003 4017 4047 4080 5010 5019"  # the buyer cancelled or left the page

#: Session states by the code of an inquiry or callback.
STATES: dict[str, GatewaySessionState] = (
    dict.fromkeys(FAILURES, GatewaySessionState.DECLINED)
    | dict.fromkeys(_CAPTURED.split(), GatewaySessionState.CAPTURED)
    | dict.fromkeys(DEVIATIONS, GatewaySessionState.CAPTURED)
    | dict.fromkeys(_CANCELLED.split(), GatewaySessionState.CANCELLED)
    | {
        "0001": GatewaySessionState.AUTHORISING,  # pending
        "2001": GatewaySessionState.AUTHORISING,  # in progress
        "4009": GatewaySessionState.AUTHORISING,  # request in progress
        "5009": GatewaySessionState.CLOSED,  # expired
        "9020": GatewaySessionState.CLOSED,  # expired
        SOFT_DECLINED: GatewaySessionState.ATTEMPTED,
    }
)

_UNDECIDED = """
    0999 2003 4000 4046 4048 4049 4069 4070 4074 4079 4082 4083 4084 4085 4095 4097 4200 4201 4202
    4203 4204 4205 4208 4209 5002 5005 5018 6101 6102 6103 6104 6105 6106 6107 6108 6109 6110 9004
    9005 9006 9007 9008 9009 9010 9012 9013 9014 9015 9016 9017 9037 9038 9039 9040 9041 9042 9057
    9058 9059 9060 9078 9080 9088 9089 9090 9091 9092 9093 9094 9095 9100 9101 9102 9103 9104 9105
    9106 9107 9108 9109 9110 9202 9900 9901 9902 9903 9904 9905 9906 9907 9908 9909 9990 9991 9992
    9993 9994 9995 9996 9997 9998 9999
"""

#: Published codes that do not indicate the result of a payment. They concern errors, card
#: verification, tokens, reconciliation, cancellation and settlement, or are reserved.
UNDECIDED = NOT_FOUND | frozenset(_UNDECIDED.split())

#: Disputes and their effect on the money. Only 4130 is documented. 2C2P has yet to confirm the
#: meaning of 4131 and 4132 (`docs/operate/refunds.md`, "Disputed money").
DISPUTES: dict[str, tuple[DisputeState, DisputedFunds]] = {
    "4130": (DisputeState.OPEN, DisputedFunds.WITHDRAWN),
    "4131": (DisputeState.WON, DisputedFunds.REINSTATED),
    "4132": (DisputeState.WON, DisputedFunds.REINSTATED),
}

#: Result codes of the maintenance API.
DONE = "00"
NO_TRANSACTION = "16"
REFUND_PENDING = "42"

#: The payment is not settled, so it cannot be refunded but can be voided in full.
UNREFUNDABLE = frozenset({"12", "41"})

_REFUSED = """
    02 03 10 11 12 13 14 15 16 17 18 21 22 25 30 40 41 43 44 45 46 47 48 49 54 61 65 96 97
"""

#: Final rejections. After 29, 50 to 53, 95, 98 and 99, the request may still be in progress.
REFUSED = frozenset(_REFUSED.split())

#: Refund states by the status of a transaction or refund.
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
