"""A mail as it is written, stored and sent."""

from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from msgspec import Struct

from payintent.domain.mail import body_text, header_text
from payintent.email_address import to_mailbox

_POLICY = SMTP.clone(cte_type="7bit")  # servers that take no 8 bits are still there
_UTF8_POLICY = _POLICY.clone(utf8=True)  # for a local part beyond ASCII (RFC 6531)
_NAME_MAX = 60


class Mail(Struct, frozen=True):
    recipient: str
    subject: str
    text: str
    sender_name: str = ""  # beside our address, such as a shop's name


class UnsendableMailError(Exception):
    """A mail that cannot be written, such as to an address that is none; it is not tried again."""


def compose(mail: Mail, sender: str, mark: str) -> EmailMessage:
    """Write a mail's headers and body; one `mark` is one mail, however often it is sent.

    Raises `UnsendableMailError` for an address that mail cannot reach, and for whatever else the
    library refuses to write. Names and subjects lose what could end a header.
    """
    mailbox = to_mailbox(mail.recipient)
    if mailbox is None:
        raise UnsendableMailError("mail cannot reach the recipient's address")
    try:
        message = _written(mail, mailbox, sender, mark)
        message.as_bytes()  # or the library would refuse it amid the others that are sent with it
    except (MessageError, ValueError) as error:
        raise UnsendableMailError(type(error).__name__) from error
    return message


def _written(mail: Mail, mailbox: str, sender: str, mark: str) -> EmailMessage:
    name, _, host = sender.rpartition("@")
    message = EmailMessage(policy=_POLICY if mailbox.isascii() else _UTF8_POLICY)
    message["From"] = Address(header_text(mail.sender_name, _NAME_MAX), name, host)
    local, _, domain = mailbox.rpartition("@")
    message["To"] = Address("", local, domain)  # parsing would refuse what RFC 6531 allows
    message["Subject"] = header_text(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{mark}@{host}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(body_text(mail.text))
    return message
