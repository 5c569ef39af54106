"""The result of a harmless request about a gateway account."""

from dataclasses import dataclass
from enum import StrEnum


class AccountProblem(StrEnum):
    ADDRESS = "address"  # no connection: the name, the port, or a firewall
    TLS = "tls"  # the certificate cannot be verified
    SILENCE = "silence"  # connected, and no usable answer
    THROTTLED = "throttled"  # it limits our requests, or refuses our address
    CREDENTIALS = "credentials"
    CLOCK = "clock"  # ours and the gateway's differ
    OTHER_GATEWAY = "other_gateway"  # what answers is not this gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheck:
    """What a harmless request about an account showed; `detail` is for operators, no secrets."""

    problem: AccountProblem | None  # None: it can be used
    detail: str
