"""Compose emails, normalize addresses, and define the retry schedule."""

import re
import unicodedata
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from enum import StrEnum

import idna
from msgspec import Struct

from payintent.core.addresses import is_mail_address

#: Emails that are still unsent after this period are deleted.
RETENTION_DAYS = 3
#: Delay before each of nine attempts, which span about two days.
_DELAYS_S = (0, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600)


class MailKind(StrEnum):
    INVITATION = "invitation"
    PAYMENT_LINK = "payment_link"
    RECEIPT = "receipt"
    REFUND_ADDRESS = "refund_address"


def retry_delay_s(attempts_made: int) -> int | None:
    """Return the delay before the next attempt, or None if there are no attempts left."""
    return _DELAYS_S[attempts_made] if attempts_made < len(_DELAYS_S) else None


def to_header_line(text: str, length_max: int = 200) -> str:
    """Convert text to a single header line, truncated and without control characters."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:length_max]


def to_encodable_text(text: str) -> str:
    """Replace lone surrogates, which JSON allows but which cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_POLICY = SMTP.clone(cte_type="7bit")  # some servers do not accept 8-bit text
_UTF8_POLICY = _POLICY.clone(utf8=True)  # for non-ASCII local parts (RFC 6531)
_NAME_CHARS_MAX = 60


class Mail(Struct, frozen=True):
    recipient: str
    subject: str
    text: str
    sender_name: str = ""  # such as a shop's name; the sender's address comes from the settings


class UnsendableMailError(Exception):
    """An email cannot be composed, for example because of an invalid address. It is not retried."""


def compose(mail: Mail, sender: str, message_id: str) -> EmailMessage:
    """Compose a message. All attempts to send an email must use the same `message_id`.

    Control characters are removed from names and subjects to prevent header injection. Raises
    `UnsendableMailError` if the address is invalid or the email cannot be encoded.
    """
    mailbox = to_mailbox(mail.recipient)
    if mailbox is None:
        raise UnsendableMailError("the recipient's address is not valid")
    try:
        message = _build_message(mail, mailbox, sender, message_id)
        message.as_bytes()  # raises encoding errors now, not while a batch is being sent
    except (MessageError, ValueError) as error:
        raise UnsendableMailError(type(error).__name__) from error
    return message


def _build_message(mail: Mail, mailbox: str, sender: str, message_id: str) -> EmailMessage:
    name, _, host = sender.rpartition("@")
    message = EmailMessage(policy=_POLICY if mailbox.isascii() else _UTF8_POLICY)
    message["From"] = Address(to_header_line(mail.sender_name, _NAME_CHARS_MAX), name, host)
    local_part, _, domain = mailbox.rpartition("@")
    # The parts are passed separately, because parsing rejects addresses that RFC 6531 allows.
    message["To"] = Address("", local_part, domain)
    message["Subject"] = to_header_line(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{message_id}@{host}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(to_encodable_text(mail.text))
    return message


_LOCAL_BYTES_MAX = 64  # RFC 5321, section 4.5.3.1.1
#: RFC 6532's dot-atom: characters that RFC 5322 allows without quotes, and non-ASCII characters.
_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"
_LOCAL_PART = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")


def to_mailbox(address: str) -> str | None:
    """Convert an address for SMTP, with its domain in ASCII; None if it is invalid.

    The local part is unchanged. If it is not ASCII, the server must support SMTPUTF8.
    """
    local_part, _, domain = address.rpartition("@")
    ascii_domain = _to_ascii(domain)
    if ascii_domain is None:
        return None
    mailbox = f"{local_part}@{ascii_domain}"
    if local_part.isascii():
        return mailbox if is_mail_address(mailbox) else None
    is_valid_local = (
        _LOCAL_PART.fullmatch(local_part) and len(local_part.encode()) <= _LOCAL_BYTES_MAX
    )
    return mailbox if is_valid_local and is_mail_address(f"x@{ascii_domain}") else None


def to_comparable(address: str) -> str:
    """Normalize an address or `@domain`, so that different spellings of it are equal."""
    local_part, _, domain = unicodedata.normalize("NFC", address).rpartition("@")
    return f"{local_part}@{_to_ascii(domain) or domain}".lower()


def _to_ascii(domain: str) -> str | None:
    if domain.isascii():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode()
    except idna.IDNAError:
        return None
