"""A pending sign-in, which is stored in a cookie rather than in the database.

The state, nonce and verifier are keyed digests of the cookie. An attacker cannot compute them for
a forged cookie, and a state is valid only in the browser that started the sign-in.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime

from payintent.core.access import OPERATOR
from payintent.http.address_limits import UnauthorizedError
from payintent.runtime.encryption import Encryption

VALIDITY_S = 600
_SECRET_BYTES = 24
_COOKIE_CHARS_MAX = 3_500
_DOTS = 2  # separators in a cookie


@dataclass(frozen=True, slots=True)
class SignInFlow:
    cookie: str = field(repr=False)
    next_path: str  # path to open afterwards; not validated
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        """The code challenge (RFC 7636, section 4.2)."""
        return _encode_base64url(hashlib.sha256(self.verifier.encode()).digest())


def begin_flow(encryption: Encryption, next_path: str, now: datetime) -> SignInFlow:
    """Start a sign-in with a cookie that is valid for ten minutes."""
    encoded_path = _encode_base64url(next_path.encode())
    if len(encoded_path) > _COOKIE_CHARS_MAX - 100:
        encoded_path = ""
    cookie = f"{secrets.token_urlsafe(_SECRET_BYTES)}.{int(now.timestamp())}.{encoded_path}"
    return _derive_flow(encryption, cookie)


def resume_flow(encryption: Encryption, cookie: str, state: str, now: datetime) -> SignInFlow:
    """Restore a sign-in from its cookie; raise `UNAUTHORIZED` if it is expired or forged."""
    if len(cookie) > _COOKIE_CHARS_MAX or not cookie.isascii() or cookie.count(".") != _DOTS:
        raise _make_invalid_state_error()
    flow = _derive_flow(encryption, cookie)
    if not hmac.compare_digest(flow.state.encode(), state.encode(errors="replace")):
        raise _make_invalid_state_error()
    started_s = int(cookie.split(".")[1])  # the matching state authenticates it
    if not 0 <= now.timestamp() - started_s + 1 <= VALIDITY_S:
        raise _make_invalid_state_error()
    return flow


def _derive_flow(encryption: Encryption, cookie: str) -> SignInFlow:
    def derive(purpose: str) -> str:
        return _encode_base64url(encryption.digest(f"console sign-in {purpose}:{cookie}"))

    return SignInFlow(
        cookie, _read_next_path(cookie), derive("state"), derive("nonce"), derive("verifier")
    )


def _read_next_path(cookie: str) -> str:
    encoded = cookie.rpartition(".")[2]
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return ""


def _encode_base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _make_invalid_state_error() -> UnauthorizedError:
    return UnauthorizedError(OPERATOR, "oidc_state")
