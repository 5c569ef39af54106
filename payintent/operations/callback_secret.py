"""Creation of callback secrets."""

from payintent.encryption import callback_secret_context
from payintent.operations.base import OperationContext
from payintent.storage import callback_secrets
from payintent.storage.database import Tx
from payintent.webhooks import signature


async def add_callback_secret(context: OperationContext, tx: Tx, merchant_id: int) -> str:
    """Add a secret, stored encrypted; return its text, `whsec_…`, which is shown only once."""
    secret_id = tx.id_generator.new_id()
    secret = signature.new_key()
    encryption_context = callback_secret_context(merchant_id, secret_id)
    sealed = context.encryption.encrypt(secret, encryption_context)
    await callback_secrets.add_secret(tx, secret_id, merchant_id, sealed)
    return signature.encode_secret(secret)
