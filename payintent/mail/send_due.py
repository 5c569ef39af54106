"""Sends the mail that is due: what the server takes is forgotten, what it refuses for good too."""

from collections.abc import Awaitable, Callable, Sequence
from email.message import EmailMessage
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.domain.mail import MailKind, next_mail_wait_s
from payintent.encryption import Encryption, EncryptionKeyError, mail_context
from payintent.log import get_logger
from payintent.mail.message import Mail, UnsendableMailError, compose
from payintent.mail.smtp_client import SendOutcome, SendResult, SmtpClient
from payintent.storage import mails
from payintent.storage.database import Database
from payintent.storage.mails import MailRecord

_log = get_logger("mail")
_BATCH = 10
_LEASE_S = 900  # ten mails, at most four steps with the server each
MAILS = Counter("payintent_mails_total", "Attempts to send a mail", ["kind", "outcome"])
#: Writes the receipt of a payment; None where there is nobody to send it to.
ComposeReceipt = Callable[[UUID], Awaitable[Mail | None]]


class MailSender:
    """Sends what is due through one server; several workers share the work."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        client: SmtpClient,
        sender: str,
        compose_receipt: ComposeReceipt,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._client = client
        self._sender = sender
        self._compose_receipt = compose_receipt

    async def step(self) -> bool:
        """Send a handful; True where there may be more."""
        claimed = await mails.claim_due(self._database, _BATCH, _LEASE_S)
        written = [(record, await self._write(record)) for record in claimed]
        sendable = [(record, mail) for record, mail in written if isinstance(mail, EmailMessage)]
        if sendable:
            results = await self._client.send([message for _, message in sendable])
            await self._note([record for record, _ in sendable], results)
        unsent = [(record, why) for record, why in written if isinstance(why, SendResult)]
        await self._note([record for record, _ in unsent], [result for _, result in unsent])
        return len(claimed) == _BATCH

    async def _write(self, record: MailRecord) -> EmailMessage | SendResult:
        """Write a mail, or say why there is none to send: no mail holds up the others."""
        try:
            mail = await self._read(record)
            if mail is None:
                return SendResult(SendOutcome.NEEDLESS)
            return compose(mail, self._sender, str(record.id))
        except (UnsendableMailError, msgspec.DecodeError) as error:
            return SendResult(SendOutcome.REFUSED, type(error).__name__)
        except EncryptionKeyError as error:  # this process may have an older key ring
            return SendResult(SendOutcome.LATER, type(error).__name__)
        except (StorageUnavailableError, LockTimeoutError):
            raise  # which is about all of them, and the step is deferred
        except Exception as error:  # noqa: BLE001 - a fault of ours, met by this mail alone
            _log.error("mail_not_written", mail=str(record.id), exc_info=error)
            return SendResult(SendOutcome.LATER, type(error).__name__)

    async def _read(self, record: MailRecord) -> Mail | None:
        if record.kind is MailKind.RECEIPT:
            assert record.payment_id is not None  # noqa: S101 - mail_content
            return await self._compose_receipt(record.payment_id)
        assert record.sealed is not None  # noqa: S101 - mail_content
        opened = self._encryption.decrypt(record.sealed, mail_context(record.id))
        return msgspec.json.decode(opened, type=Mail)

    async def _note(self, records: Sequence[MailRecord], results: Sequence[SendResult]) -> None:
        done: list[UUID] = []
        for record, result in zip(records, results, strict=True):
            wait_s = next_mail_wait_s(record.attempts)
            if result.outcome is SendOutcome.SENT:
                MAILS.labels(record.kind, "sent").inc()
                done.append(record.id)
            elif result.outcome is SendOutcome.NEEDLESS:
                done.append(record.id)
            elif result.outcome is SendOutcome.REFUSED or wait_s is None:
                _give_up(record, result.why)
                done.append(record.id)
            else:
                MAILS.labels(record.kind, "later").inc()
                _log.warning("mail_put_off", mail=str(record.id), why=result.why, in_s=wait_s)
                await mails.put_off(self._database, record.id, wait_s)
        await mails.delete(self._database, done)


def _give_up(record: MailRecord, why: str) -> None:
    MAILS.labels(record.kind, "given_up").inc()
    _log.warning(
        "mail_given_up",
        mail=str(record.id),
        kind=record.kind,
        why=why,
        attempts=record.attempts,
        payment=str(record.payment_id) if record.payment_id else None,
    )
