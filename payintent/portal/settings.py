"""The settings page: read-only on the live side, and editable on the test side."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from uuid import UUID, uuid4

from starlette.responses import Response

from payintent.core.errors import BadRequestError, ConflictError, RefusedError
from payintent.http.errors import get_http_status
from payintent.members.edit_test_side import (
    EditableSettings,
    SettingsConflictError,
    change_test_settings,
    rotate_test_secret,
)
from payintent.members.model import MemberRight
from payintent.merchants.callback_secrets import list_secret_times
from payintent.merchants.store import require_merchant
from payintent.portal.visits import MemberVisit, member_page, redirect, take_change_token
from payintent.test_mode.trigger_event import TRIGGERED_EVENTS
from payintent.webhooks.model import EventType

_PAGE = "/merchant/settings"
_SECRETS_MAX = 10
_HOUR_S = 3_600
#: How long previous webhook secrets can remain valid after a new one is created, in hours.
_OVERLAPS_H = (0, 1, 24)
_NAMES = tuple(field.name for field in fields(EditableSettings))
#: The words for members, by the names that error messages contain.
_LABELS = {
    "allow_http is set": "your payment service provider allows http",
    "callback_url": "Callback URL",
    "return_url": "Return URL",
    "allowed_origins": "Allowed origins",
    "logo_url": "Logo URL",
    "accent_colour": "Colour",
}
_RELOAD = "Reload the page and try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The state of the forms on the settings page."""

    opened: EditableSettings | None = None  # None: the stored settings
    entered: EditableSettings | None = None  # None: the stored settings
    conflicts: Sequence[str] = field(default=())  # settings that another member has changed
    refusal: RefusedError | None = None


@member_page()
async def get_settings(visit: MemberVisit) -> Response:
    return await _render_settings_page(visit, _Page())


@member_page(MemberRight.MANAGE_TEST)
async def post_settings(visit: MemberVisit) -> Response:
    """`POST /merchant/settings/save`: store the changed settings of the test side."""
    opened, entered = _read_settings(visit, "opened_"), _read_settings(visit, "")
    try:
        await take_change_token(visit)
        await change_test_settings(
            visit.context.operation_context,
            visit.actor,
            visit.merchant_id,
            opened=opened,
            entered=entered,
        )
    except SettingsConflictError as conflict:
        page = _merge_conflict(conflict, opened, entered)
    except RefusedError as refusal:
        page = _Page(opened=opened, entered=entered, refusal=refusal)
    else:
        return redirect(f"{_PAGE}?saved=1")
    return await _render_settings_page(visit, page)


@member_page(MemberRight.MANAGE_TEST)
async def post_rotate_secret(visit: MemberVisit) -> Response:
    """`POST /merchant/settings/secret`: replace the webhook secret, and show it once."""
    try:
        await take_change_token(visit)
        issued_secret = await rotate_test_secret(
            visit.context.operation_context,
            visit.actor,
            visit.merchant_id,
            newest_secret=_parse_uuid(visit.form.get("newest_secret")),
            overlap_s=_parse_overlap_s(visit.form.get("overlap_hours")),
        )
    except RefusedError as refusal:
        return await _render_settings_page(visit, _Page(refusal=refusal))
    return visit.render(
        "secret.html",
        "Your webhook secret",
        label="Webhook secret",
        secret=issued_secret.callback_secret,
        next_path=_PAGE,
    )


@member_page(MemberRight.MANAGE_TEST)
async def post_test_event(visit: MemberVisit) -> Response:
    """`POST /merchant/settings/test-event`: send an event, and show its delivery."""
    try:
        await take_change_token(visit)
        merchant = await require_merchant(visit.context.database, visit.merchant_id)
        if merchant.callback_url is None:
            raise ConflictError("Set a callback URL first.")
        event_id = await visit.context.event_trigger.trigger(
            visit.merchant_id,
            _parse_event_type(visit.form.get("type")),
            _parse_uuid(visit.form.get("key")),
        )
    except RefusedError as refusal:
        return await _render_settings_page(visit, _Page(refusal=refusal))
    return redirect("/merchant/events" if event_id is None else f"/merchant/events/{event_id}")


def _read_settings(visit: MemberVisit, prefix: str) -> EditableSettings:
    texts = {name: visit.form.get(f"{prefix}{name}", "") for name in _NAMES}
    origins = tuple(texts.pop("allowed_origins").replace(",", " ").split())
    return EditableSettings(**texts, allowed_origins=origins)


def _merge_conflict(
    conflict: SettingsConflictError, opened: EditableSettings, entered: EditableSettings
) -> _Page:
    """Apply the member's changes to the stored settings, so that no change is lost."""
    changes = {
        name: getattr(entered, name)
        for name in _NAMES
        if getattr(entered, name) != getattr(opened, name)
    }
    return _Page(
        opened=conflict.current,
        entered=replace(conflict.current, **changes),
        conflicts=conflict.names,
        refusal=conflict,
    )


def _parse_uuid(text: str | None) -> UUID:
    try:
        return UUID(text or "")
    except ValueError:
        raise BadRequestError(_RELOAD) from None


def _parse_overlap_s(text: str | None) -> int:
    hours = {str(hours): hours for hours in _OVERLAPS_H}.get(text or "")
    if hours is None:
        raise BadRequestError("Select an overlap from the list.")
    return hours * _HOUR_S


def _parse_event_type(text: str | None) -> EventType:
    event_type = next((kind for kind in TRIGGERED_EVENTS if kind == text), None)
    if event_type is None:
        raise BadRequestError("Select an event from the list.")
    return event_type


async def _render_settings_page(visit: MemberVisit, page: _Page) -> Response:
    database, refusal = visit.context.database, page.refusal
    merchant = await require_merchant(database, visit.merchant_id)
    stored = EditableSettings.of_merchant(merchant)
    return visit.render(
        "settings.html",
        "Settings",
        status=get_http_status(refusal) if refusal else 200,
        merchant=merchant,
        stored=stored,
        opened=page.opened or stored,
        entered=page.entered or stored,
        conflicts=page.conflicts,
        can_edit=visit.in_test and visit.may(MemberRight.MANAGE_TEST),
        secrets=await list_secret_times(database, visit.merchant_id, _SECRETS_MAX),
        overlaps=_OVERLAPS_H,
        event_types=TRIGGERED_EVENTS,
        key=str(uuid4()),
        is_saved="saved" in visit.request.query_params and refusal is None,
        problem_text=refusal and _name_settings(refusal.message),
    )


def _name_settings(message: str) -> str:
    """Replace the names in a message with words that members know."""
    for name, label in _LABELS.items():
        message = message.replace(name, label)
    return message
