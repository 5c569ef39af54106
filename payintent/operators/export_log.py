"""Record exports of lists in the audit log."""

from collections.abc import Mapping
from typing import Any

from payintent.db.database import Database
from payintent.operators import audit_store
from payintent.operators.operation import Actor

#: Filters with personal data. The audit log cannot be erased, so it contains only their names.
_PERSONAL_FILTERS = frozenset({"payer_uid", "order_id", "q"})


async def record_export(
    database: Database,
    actor: Actor,
    merchant_id: int | None,
    list_name: str,
    file_format: str,
    filters: Mapping[str, Any],
) -> None:
    stored_filters = {
        name: "(not stored)" if name in _PERSONAL_FILTERS else value
        for name, value in filters.items()
    }
    async with database.transaction() as tx:
        await audit_store.add(
            tx,
            actor_name=actor.name,
            reason="",
            action="list.export",
            merchant_id=merchant_id,
            details={"list": list_name, "format": file_format, "filters": stored_filters},
        )
