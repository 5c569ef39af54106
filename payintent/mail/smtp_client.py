"""An SMTP client that sends a batch of emails over a single connection."""

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from enum import Enum, auto

from payintent.runtime.settings import Settings
from payintent.runtime.waiting import release_slot

TIMEOUT_S = 20.0  # for each server round trip
#: Reply codes that permanently reject a recipient or message (RFC 5321, 4.2.3; RFC 7504).
_PERMANENT_CODES = frozenset({501, 521, 550, 551, 552, 553, 554, 555, 556})


class SendOutcome(Enum):
    SENT = auto()
    REFUSED = auto()  # permanently rejected
    RETRY = auto()  # the server is unreachable or busy, or rejects our account
    NO_RECIPIENT = auto()  # nothing to send
    NOT_ATTEMPTED = auto()  # the email could not be read from the database


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of an attempt. `reason` does not contain addresses."""

    outcome: SendOutcome
    reason: str = ""


class SmtpClient:
    """Sends emails through the configured server, in a thread because `smtplib` blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def send(self, messages: Sequence[EmailMessage]) -> list[SendResult]:
        """Send emails over a single connection, and return a result for each email."""
        release_slot()
        return await asyncio.to_thread(self._send, messages)

    async def check_connection(self) -> str | None:
        """Connect and sign in without sending an email; return the problem, or None on success."""
        release_slot()
        return await asyncio.to_thread(self._check_connection)

    def _send(self, messages: Sequence[EmailMessage]) -> list[SendResult]:
        results: list[SendResult] = []
        try:
            with self._connect() as server:
                for message in messages:
                    results.append(_send_message(server, message))  # noqa: PERF401 - partial results
        except (OSError, smtplib.SMTPException, ValueError) as error:
            unsent_count = len(messages) - len(results)
            results += [SendResult(SendOutcome.RETRY, _describe_error(error))] * unsent_count
        return results

    def _check_connection(self) -> str | None:
        try:
            with self._connect() as server:
                server.noop()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return _describe_error(error)
        return None

    def _connect(self) -> smtplib.SMTP:
        """Connect, encrypt the connection, and sign in if a user is configured."""
        settings = self._settings
        context = settings.client_tls or ssl.create_default_context()
        server = self._open_connection(context)
        try:
            if settings.smtp_security == "starttls":
                server.starttls(context=context)  # raises if the server does not support STARTTLS
            if settings.smtp_user:
                server.login(settings.smtp_user, settings.smtp_password.get_secret_value())
            server.ehlo_or_helo_if_needed()  # a rejection is raised before the first email is sent
        except BaseException:
            server.close()
            raise
        return server

    def _open_connection(self, context: ssl.SSLContext) -> smtplib.SMTP:
        settings = self._settings
        # EHLO uses the domain of our sender address, to keep this machine's name private.
        domain = settings.smtp_from.rpartition("@")[2]
        address = settings.smtp_host, settings.smtp_port, domain
        if settings.smtp_security == "tls":
            return smtplib.SMTP_SSL(*address, timeout=TIMEOUT_S, context=context)
        return smtplib.SMTP(*address, timeout=TIMEOUT_S)


def _send_message(server: smtplib.SMTP, message: EmailMessage) -> SendResult:
    try:
        server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        [(code, _)] = error.recipients.values()
        return _failure_result(code)
    except smtplib.SMTPSenderRefused as error:  # a problem with our account, not with this email
        return SendResult(
            SendOutcome.RETRY, f"the server returned {error.smtp_code} for our sender address"
        )
    except smtplib.SMTPResponseException as error:
        return _failure_result(error.smtp_code)
    except smtplib.SMTPNotSupportedError:
        return SendResult(SendOutcome.REFUSED, "the server does not support SMTPUTF8")
    return SendResult(SendOutcome.SENT)


def _failure_result(code: int) -> SendResult:
    outcome = SendOutcome.REFUSED if code in _PERMANENT_CODES else SendOutcome.RETRY
    return SendResult(outcome, f"the server returned {code}")


def _describe_error(error: Exception) -> str:
    """Describe an error without the server's message, which may contain addresses or passwords."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{type(error).__name__} {error.smtp_code}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    return type(error).__name__
