"""The passkey verifier; its library is imported when the first passkey is used."""

from typing import TYPE_CHECKING

from payintent.config import Settings

if TYPE_CHECKING:
    from payintent.portal.passkeys import PasskeyVerifier


class PasskeyError(Exception):
    """A response about a passkey is invalid; the message is for the log only."""


def open_verifier(settings: Settings) -> "PasskeyVerifier":
    from payintent.portal.passkeys import PasskeyVerifier

    return PasskeyVerifier(settings.portal_address)
