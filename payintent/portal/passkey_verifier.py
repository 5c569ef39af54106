"""The verifier of passkeys, whose library is imported where the first person uses one."""

from typing import TYPE_CHECKING

from payintent.config import Settings

if TYPE_CHECKING:
    from payintent.portal.passkeys import PasskeyVerifier


class PasskeyError(Exception):
    """A passkey's answer is not what it must be; the message is for the log alone."""


def open_verifier(settings: Settings) -> "PasskeyVerifier":
    from payintent.portal.passkeys import PasskeyVerifier

    return PasskeyVerifier(settings.portal_address)
