"""Email a payment link to a buyer."""

from uuid import UUID

from payintent.core import ids
from payintent.core.errors import BadRequestError
from payintent.core.languages import LOCALES
from payintent.db.database import Database
from payintent.db.encryption_keys import ensure_writing_key
from payintent.mail.message import MailKind, to_mailbox
from payintent.mail.store import add_mail
from payintent.merchants.limits import MerchantRateLimiter
from payintent.operators import audit_store
from payintent.operators.operation import Actor
from payintent.payment_links.model import LinkClosedError, LinkState
from payintent.payment_links.store import LinkMail, LinkWithUses
from payintent.runtime.encryption import Encryption

_ADDRESS_CHARS_MAX = 320
_ID_BYTES = 16


async def mail_link(
    database: Database,
    encryption: Encryption,
    limiter: MerchantRateLimiter,
    stored: LinkWithUses,
    *,
    form_key: UUID,
    recipient: str,
    locale: str,
    sender: Actor,
) -> None:
    """Store an email with a link. Its audit entry does not contain the recipient.

    `form_key` identifies the form. Until the email has been sent, a repeated submission has no
    effect.

    Raises `LinkClosedError`, `RATE_LIMITED`, and `BAD_REQUEST` for an invalid address or language.
    """
    if len(recipient) > _ADDRESS_CHARS_MAX or to_mailbox(recipient) is None:
        raise BadRequestError("Enter an email address, such as ann@example.com.")
    if locale not in LOCALES:
        raise BadRequestError("Choose a language from the list.")
    if stored.state is not LinkState.OPEN:
        raise LinkClosedError(stored.state)
    link = stored.link
    await limiter.take_link_mail_token(link.merchant_id)
    async with database.transaction() as tx:
        await ensure_writing_key(tx, encryption)
        content = LinkMail(link.id, recipient, locale)
        digest = encryption.digest(f"link mail:{link.id}:{form_key}:{recipient}:{locale}")
        mail_id = UUID(bytes=digest[:_ID_BYTES])
        if not await add_mail(tx, encryption, mail_id, MailKind.PAYMENT_LINK, content):
            return
        await audit_store.add(
            tx,
            actor_name=sender.name,
            reason=sender.reason,
            action="payment-link.mail",
            merchant_id=link.merchant_id,
            details={
                "payment_link_id": ids.format_id(ids.PAYMENT_LINK, link.id),
                "language": locale,
            },
        )
