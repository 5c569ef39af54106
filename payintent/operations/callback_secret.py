"""A callback secret: made, encrypted for its merchant, and shown once."""

from uuid import UUID

from payintent.encryption import callback_secret_context
from payintent.operations.base import OperationContext
from payintent.storage import callback_secrets
from payintent.storage.database import Tx
from payintent.webhooks import signature


async def add_callback_secret(context: OperationContext, tx: Tx, merchant_id: int) -> str:
    """Make a secret and store it encrypted; returns its text, `whsec_…`, this once."""
    secret_id: UUID = tx.id_generator.new_id()
    secret = signature.new_key()
    encryption_context = callback_secret_context(merchant_id, secret_id)
    sealed = context.encryption.encrypt(secret, encryption_context)
    await callback_secrets.add_secret(tx, secret_id, merchant_id, sealed)
    return signature.encode_secret(secret)
