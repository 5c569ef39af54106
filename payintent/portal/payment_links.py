"""Portal pages to list, create, show, email and deactivate payment links."""

from collections.abc import Mapping
from datetime import date, timedelta
from uuid import UUID, uuid4

import segno
from starlette.responses import Response

from payintent.core import ids
from payintent.core.errors import BadRequestError, ErrorCode, NotFoundError, RefusedError
from payintent.core.languages import OWN_NAMES
from payintent.core.money import CURRENCIES
from payintent.http.errors import get_http_status
from payintent.http.pagination import parse_number, read_id_cursor
from payintent.members.model import MemberRight
from payintent.merchants.store import require_merchant
from payintent.payment_links import store as link_store
from payintent.payment_links.create import (
    create_link,
    deactivate_link,
    get_merchant_link,
    make_link_fields,
)
from payintent.payment_links.mail_link import mail_link
from payintent.payment_links.model import USES_MAX, LinkState
from payintent.payment_links.schemas import CreateLinkBody
from payintent.payment_links.store import LinkWithUses
from payintent.portal.visits import PAGE_ROWS, MemberVisit, format_next_query, member_page, redirect

#: Fields of a link that the templates read, and that the API omits if they are empty.
_OPTIONAL = (
    "amount",
    "amount_min",
    "amount_max",
    "max_uses",
    "order_id",
    "description",
    "return_url",
)
_LINKS_PAGE = "/merchant/payment-links"
_TEXTS = ("description", "order_id", "amount", "amount_min", "amount_max", "return_url")
_FIELDS = (*_TEXTS, "title", "currency", "max_uses", "last_day")


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def get_payment_links(visit: MemberVisit) -> Response:
    return await _render_list(visit)


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def post_payment_link(visit: MemberVisit) -> Response:
    context, form = visit.context, visit.form
    try:
        created_link = await create_link(
            context.database,
            context.settings,
            await context.merchant_directory.get(visit.merchant_id),
            _read_body(form),
            _parse_key(form.get("key", "")),
            visit.actor.name,
        )
    except RefusedError as refusal:
        return await _render_list(visit, refusal)
    link_id = ids.format_id(ids.PAYMENT_LINK, created_link.stored.link.id)
    return redirect(f"{_LINKS_PAGE}/{link_id}")


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def get_payment_link(visit: MemberVisit) -> Response:
    return await _render_link(visit, await _load_link(visit))


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def post_payment_link_mail(visit: MemberVisit) -> Response:
    context = visit.context
    stored = await _load_link(visit)
    if not context.settings.sends_mail:
        raise NotFoundError("Email is not configured.")
    try:
        await mail_link(
            context.database,
            context.encryption,
            context.limiter,
            stored,
            form_key=_parse_key(visit.form.get("key", "")),
            recipient=visit.form.get("email", "").strip(),
            locale=visit.form.get("language", ""),
            sender=visit.actor,
        )
    except RefusedError as refusal:
        return await _render_link(visit, stored, refusal)
    return redirect(f"{visit.request.url.path.removesuffix('/mail')}?mailed=1")


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def post_deactivate_payment_link(visit: MemberVisit) -> Response:
    link_id = (await _load_link(visit)).link.id
    await deactivate_link(visit.context.database, visit.merchant_id, link_id, visit.actor.name)
    return redirect(visit.request.url.path.removesuffix("/deactivate"))


async def _render_link(
    visit: MemberVisit, stored: LinkWithUses, refusal: RefusedError | None = None
) -> Response:
    merchant = await require_merchant(visit.context.database, visit.merchant_id)
    link = {
        **dict.fromkeys(_OPTIONAL),
        **make_link_fields(stored, visit.context.settings.pages_base),
    }
    code = segno.make(str(link["url"]), error="m")
    return visit.render(
        "payment_link.html",
        "Payment link",
        status=get_http_status(refusal) if refusal else 200,
        link=link,
        can_mail=visit.context.settings.sends_mail and stored.state is LinkState.OPEN,
        is_mailed="mailed" in visit.request.query_params,
        languages=OWN_NAMES,
        language=visit.form.get("language") or merchant.locale,
        email=visit.form.get("email", ""),
        key=str(uuid4()),
        problem_text=refusal and refusal.message,
        created_at=stored.link.created_at,
        expires_at=stored.link.terms.expires_at,
        qr_code=code.svg_data_uri(border=2, dark="#000", light="#fff"),
    )


async def _render_list(visit: MemberVisit, refusal: RefusedError | None = None) -> Response:
    before = read_id_cursor(visit.request.query_params.get("cursor") or None)
    links = await link_store.list_for_merchant(
        visit.context.database, visit.merchant_id, before, PAGE_ROWS + 1
    )
    base = visit.context.settings.pages_base
    return visit.render(
        "payment_links.html",
        "Payment links",
        status=get_http_status(refusal) if refusal else 200,
        rows=[
            {
                **dict.fromkeys(_OPTIONAL),
                **make_link_fields(stored, base),
                "created": stored.link.created_at,
            }
            for stored in links[:PAGE_ROWS]
        ],
        next_query=format_next_query([stored.link.id for stored in links], {}),
        currencies=list(CURRENCIES),
        uses_max=USES_MAX,
        key=visit.form.get("key") or str(uuid4()),
        form_values={**dict.fromkeys(_FIELDS, ""), **visit.form},
        problem_text=refusal and refusal.message,
    )


def _read_body(form: Mapping[str, str]) -> CreateLinkBody:
    return CreateLinkBody(
        title=form.get("title", ""),
        currency=form.get("currency", ""),
        max_uses=_read_uses(form.get("max_uses")),
        expires_at=_read_last_day(form.get("last_day")),
        description=form.get("description"),
        order_id=form.get("order_id"),
        amount=form.get("amount"),
        amount_min=form.get("amount_min"),
        amount_max=form.get("amount_max"),
        return_url=form.get("return_url"),
    )


def _read_uses(text: str | None) -> int | None:
    uses = None if text is None else parse_number(text, USES_MAX)
    if text is not None and not uses:
        raise BadRequestError(f"Enter a number of uses from 1 to {USES_MAX}.")
    return uses


def _read_last_day(text: str | None) -> str | None:
    """Return the end of the last day on which the link is open, in UTC."""
    if text is None:
        return None
    try:
        return f"{date.fromisoformat(text) + timedelta(days=1)}T00:00:00Z"
    except (ValueError, OverflowError):
        raise BadRequestError("Enter the last day as YYYY-MM-DD.") from None


async def _load_link(visit: MemberVisit) -> LinkWithUses:
    """Return a link; raise `NOT_FOUND` if it does not exist or belongs to another merchant."""
    link_id = ids.parse_id(ids.PAYMENT_LINK, visit.request.path_params["link_id"])
    try:
        return await get_merchant_link(visit.context.database, visit.merchant_id, link_id)
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.FORBIDDEN:
            raise
        raise NotFoundError("no such payment link") from None


def _parse_key(text: str) -> UUID:
    """Parse the form's idempotency key, so that a double submission creates only one link."""
    try:
        return UUID(text)
    except ValueError:
        raise BadRequestError("Reload the page and try again.") from None
