"""Adding of sealed mail to the outbox, in the transaction of the event that it reports."""

from uuid import UUID

import msgspec

from payintent.domain.mail import MailKind
from payintent.encryption import Encryption, mail_context
from payintent.mail.message import Mail
from payintent.storage import mails
from payintent.storage.database import Tx


async def add_mail(
    tx: Tx, encryption: Encryption, mail_id: UUID, kind: MailKind, mail: Mail
) -> None:
    """Store a mail, which is sent after the transaction commits."""
    sealed = encryption.encrypt(msgspec.json.encode(mail), mail_context(mail_id))
    await mails.add_sealed(tx, mail_id, kind, sealed)
