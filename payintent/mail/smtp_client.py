"""A mail server: one connection for some mails, each with what became of it."""

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from enum import Enum, auto

from payintent.config import Settings
from payintent.slot import release_slot

TIMEOUT_S = 20.0  # of each step with the server
#: What a server says for good of a recipient or a text (RFC 5321, section 4.2.3; RFC 7504).
_FOR_GOOD = frozenset({501, 521, 550, 551, 552, 553, 554, 555, 556})


class SendOutcome(Enum):
    SENT = auto()
    REFUSED = auto()  # for good, for this mail
    LATER = auto()  # the server was away, busy, or does not know us
    NEEDLESS = auto()  # there is nobody to send it to


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of one mail, and why, without an address."""

    outcome: SendOutcome
    why: str = ""


class SmtpClient:
    """Sends through the server of the settings; in a thread, for the library blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def send(self, messages: Sequence[EmailMessage]) -> list[SendResult]:
        """Send mails over one connection; gives a result for each, and raises nothing."""
        release_slot()
        return await asyncio.to_thread(self._send, messages)

    async def examine(self) -> str | None:
        """Connect and sign in without sending anything; returns what is wrong, or None."""
        release_slot()
        return await asyncio.to_thread(self._examine)

    def _send(self, messages: Sequence[EmailMessage]) -> list[SendResult]:
        results: list[SendResult] = []
        try:
            with self._connect() as server:
                for message in messages:
                    results.append(_send_one(server, message))  # noqa: PERF401 - kept if one fails
        except (OSError, smtplib.SMTPException, ValueError) as error:
            left = len(messages) - len(results)
            results += [SendResult(SendOutcome.LATER, _why(error))] * left
        return results

    def _examine(self) -> str | None:
        try:
            with self._connect() as server:
                server.noop()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return _why(error)
        return None

    def _connect(self) -> smtplib.SMTP:
        """Connect, encrypted before anything is said of us, and sign in where there is a user."""
        chosen = self._settings
        context = chosen.client_tls or ssl.create_default_context()
        # The name that we give is that of our addresses: this machine's own is nobody's business.
        name = chosen.smtp_from.rpartition("@")[2]
        place = chosen.smtp_host, chosen.smtp_port, name
        server: smtplib.SMTP
        if chosen.smtp_security == "tls":
            server = smtplib.SMTP_SSL(*place, timeout=TIMEOUT_S, context=context)
        else:
            server = smtplib.SMTP(*place, timeout=TIMEOUT_S)
        try:
            if chosen.smtp_security == "starttls":
                server.starttls(context=context)  # raises where the server offers none
            if chosen.smtp_user:
                server.login(chosen.smtp_user, chosen.smtp_password.get_secret_value())
            server.ehlo_or_helo_if_needed()  # or a mail would be told that we are not welcome
        except BaseException:
            server.close()
            raise
        return server


def _send_one(server: smtplib.SMTP, message: EmailMessage) -> SendResult:
    try:
        server.send_message(message)
    except smtplib.SMTPRecipientsRefused as refused:
        [(code, _)] = refused.recipients.values()
        return _refused(code)
    except smtplib.SMTPSenderRefused as refused:  # which is about us, not about this mail
        return SendResult(SendOutcome.LATER, f"the server said {refused.smtp_code} to our address")
    except smtplib.SMTPResponseException as refused:
        return _refused(refused.smtp_code)
    except smtplib.SMTPNotSupportedError:
        return SendResult(SendOutcome.REFUSED, "the server does not take its characters")
    return SendResult(SendOutcome.SENT)


def _refused(code: int) -> SendResult:
    outcome = SendOutcome.REFUSED if code in _FOR_GOOD else SendOutcome.LATER
    return SendResult(outcome, f"the server said {code}")


def _why(error: Exception) -> str:
    """Say what went wrong; a message of the server may repeat an address or a password."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{type(error).__name__} {error.smtp_code}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    return type(error).__name__
