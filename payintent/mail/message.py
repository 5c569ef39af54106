"""The content of a mail, and its composition as a message."""

from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from msgspec import Struct

from payintent.domain.mail import body_text, header_text
from payintent.email_address import to_mailbox

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
