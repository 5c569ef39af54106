"""The result of an account check."""

from dataclasses import dataclass
from enum import StrEnum


class AccountProblem(StrEnum):
    ADDRESS = "address"  # no connection: host name, port or firewall
    TLS = "tls"  # the certificate cannot be verified
    SILENCE = "silence"  # connected, but no usable response
    THROTTLED = "throttled"  # the gateway limits our requests or blocks our address
    CREDENTIALS = "credentials"
    CLOCK = "clock"  # our clock and the gateway's differ
    OTHER_GATEWAY = "other_gateway"  # the server is not this gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheck:
    problem: AccountProblem | None  # None: the account works
    detail: str  # for operators, without secrets
