"""A sign-in that is under way: all of it is in a cookie, and nothing in the database.

State, nonce and verifier are digests of the cookie under the pepper, so that whoever forges a
cookie knows none of them, and a state fits the browser that began alone.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime

from payintent.api.authentication_failures import UnauthorizedError
from payintent.domain import api_key
from payintent.encryption import Encryption

VALID_S = 600
_SECRET_BYTES = 24
_COOKIE_CHARS_MAX = 3_500
_PARTS = 3


@dataclass(frozen=True, slots=True)
class SignInFlow:
    cookie: str = field(repr=False)
    onward: str  # the page to go to afterwards, as it was asked for
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        """Return what the provider is told of the verifier (RFC 7636, section 4.2)."""
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())


def begin_flow(encryption: Encryption, onward: str, now: datetime) -> SignInFlow:
    """Begin a sign-in; its cookie counts for ten minutes."""
    page = _base64url(onward.encode())
    if len(page) > _COOKIE_CHARS_MAX - 100:
        page = ""
    cookie = f"{secrets.token_urlsafe(_SECRET_BYTES)}.{int(now.timestamp())}.{page}"
    return _flow(encryption, cookie)


def resume_flow(encryption: Encryption, cookie: str, state: str, now: datetime) -> SignInFlow:
    """Return the sign-in of a cookie (`UNAUTHORIZED` unless the state is its own and recent)."""
    if len(cookie) > _COOKIE_CHARS_MAX or not cookie.isascii() or cookie.count(".") != _PARTS - 1:
        raise _refused()
    flow = _flow(encryption, cookie)
    if not hmac.compare_digest(flow.state.encode(), state.encode(errors="replace")):
        raise _refused()
    began_s = int(cookie.split(".")[1])  # ours, since the state is
    if not 0 <= now.timestamp() - began_s + 1 <= VALID_S:
        raise _refused()
    return flow


def _flow(encryption: Encryption, cookie: str) -> SignInFlow:
    def derived(what: str) -> str:
        return _base64url(encryption.digest(f"console sign-in {what}:{cookie}"))

    return SignInFlow(
        cookie, _page(cookie), derived("state"), derived("nonce"), derived("verifier")
    )


def _page(cookie: str) -> str:
    encoded = cookie.rpartition(".")[2]
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return ""


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _refused() -> UnauthorizedError:
    return UnauthorizedError(api_key.OPERATOR, "oidc_state")
