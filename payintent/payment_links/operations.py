"""Operations that list and deactivate payment links."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import NotFoundError
from payintent.db.database import Executor, Tx
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    ListLimit,
    MerchantId,
    argument,
    check_list_limit,
    option,
    parse_before,
    quote_input,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.payment_links import store as link_store
from payintent.payment_links.model import LinkState, build_link_url
from payintent.payment_links.store import LinkWithUses


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    id: str
    merchant_id: int
    title: str
    status: LinkState
    currency: str
    amount: str | None  # None: the buyer enters it
    uses: int
    max_uses: int | None
    url: str
    created_by: str
    created_at: datetime
    deactivated_at: datetime | None


class ListPaymentLinks(ReadOperation[list[LinkSummary]], frozen=True, kw_only=True):
    """List a merchant's payment links, newest first."""

    action: ClassVar[str] = "payment-link.list"
    columns = ("id", "title", "status", "amount", "currency", "uses", "max_uses", "created_at")
    merchant_id: MerchantId
    before: Annotated[str | None, option("The last link on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[LinkSummary]:
        check_list_limit(self.limit)
        await require_merchant(context.database, self.merchant_id)
        before = parse_before(ids.PAYMENT_LINK, self.before)
        links = await link_store.list_for_merchant(
            context.read_database, self.merchant_id, before, self.limit
        )
        return [_summarize(stored, context.settings.pages_base) for stored in links]


class DeactivatePaymentLink(ChangeOperation[LinkSummary], frozen=True, kw_only=True):
    """Deactivate a payment link permanently. Payments that already exist can still be paid."""

    action: ClassVar[str] = "payment-link.deactivate"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    link_id: Annotated[str, argument("The payment link ID, such as plink_0351NDickobV3yYH8omp8v.")]

    async def changes(self, context: OperationContext) -> list[str]:
        link = (await self._require_link(context.database)).link
        return [
            f"payment link {self.link_id} of merchant {link.merchant_id} stops creating payments"
        ]

    async def apply(self, context: OperationContext, tx: Tx) -> LinkSummary:
        stored = await self._require_link(tx)
        await link_store.deactivate(tx, stored.link.id, context.actor_name)
        return _summarize(await self._require_link(tx), context.settings.pages_base)

    async def _require_link(self, database: Executor) -> LinkWithUses:
        link_id: UUID | None = ids.parse_id(ids.PAYMENT_LINK, self.link_id)
        stored = await link_store.get(database, link_id) if link_id else None
        if stored is None:
            raise NotFoundError(f"no payment link {quote_input(self.link_id)}")
        return stored


def _summarize(stored: LinkWithUses, pages_base: str) -> LinkSummary:
    link, terms = stored.link, stored.link.terms
    return LinkSummary(
        id=ids.format_id(ids.PAYMENT_LINK, link.id),
        merchant_id=link.merchant_id,
        title=terms.title,
        status=stored.state,
        currency=terms.currency,
        amount=terms.amount_text,
        uses=stored.uses,
        max_uses=terms.max_uses,
        url=build_link_url(pages_base, link.token),
        created_by=link.created_by,
        created_at=link.created_at,
        deactivated_at=link.deactivated_at,
    )
