"""The kinds of mail that the service sends, its retry schedule, and its addresses."""

from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from enum import StrEnum

from msgspec import Struct

from payintent.runtime.addresses import to_mailbox

#: Unsent mail is deleted after this time, such as if no server is configured any more.
KEPT_DAYS = 3
# Seconds between attempts: nine attempts over two days.
_DELAYS_S = (0, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600)


class MailKind(StrEnum):
    INVITATION = "invitation"
    RECEIPT = "receipt"


def next_mail_wait_s(attempts_made: int) -> int | None:
    """Return the seconds until the next attempt, or None after the last attempt."""
    return _DELAYS_S[attempts_made] if attempts_made < len(_DELAYS_S) else None


def header_text(text: str, length_max: int = 200) -> str:
    """Return a text for a header: a single line without control characters, truncated."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())[:length_max]


def body_text(text: str) -> str:
    """Return an encodable text: lone surrogates, which JSON allows, are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_POLICY = SMTP.clone(cte_type="7bit")  # some servers do not accept 8-bit text
_UTF8_POLICY = _POLICY.clone(utf8=True)  # for a local part beyond ASCII (RFC 6531)
_NAME_MAX = 60


class Mail(Struct, frozen=True):
    recipient: str
    subject: str
    text: str
    sender_name: str = ""  # such as a shop's name; the address is always ours


class UnsendableMailError(Exception):
    """A mail that cannot be composed, such as for an invalid address; it is not retried."""


def compose(mail: Mail, sender: str, message_id: str) -> EmailMessage:
    """Compose a message; repeated attempts to send a mail have the same `message_id`.

    Raises `UnsendableMailError` for an invalid address, and if the library cannot encode the mail.
    Characters that could end a header are removed from names and subjects.
    """
    mailbox = to_mailbox(mail.recipient)
    if mailbox is None:
        raise UnsendableMailError("mail cannot reach the recipient's address")
    try:
        message = _build(mail, mailbox, sender, message_id)
        message.as_bytes()  # fails here, not while several mails are sent
    except (MessageError, ValueError) as error:
        raise UnsendableMailError(type(error).__name__) from error
    return message


def _build(mail: Mail, mailbox: str, sender: str, message_id: str) -> EmailMessage:
    name, _, host = sender.rpartition("@")
    message = EmailMessage(policy=_POLICY if mailbox.isascii() else _UTF8_POLICY)
    message["From"] = Address(header_text(mail.sender_name, _NAME_MAX), name, host)
    local, _, domain = mailbox.rpartition("@")
    message["To"] = Address("", local, domain)  # parsing rejects addresses that RFC 6531 allows
    message["Subject"] = header_text(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{message_id}@{host}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(body_text(mail.text))
    return message
