"""Validate operation fields, and describe them as arguments, options and form fields.

`position: Annotated[int, option(...)]` declares the option `--position`. Fields without an
annotation are available only over HTTP.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, Unpack, cast, get_args, get_origin
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from payintent.core import ids
from payintent.core.addresses import is_confidential, parse_web_origin
from payintent.core.countries import COUNTRIES, TOR
from payintent.core.errors import BadRequestError, NotFoundError, quote_input
from payintent.core.money import TENDER
from payintent.core.texts import check_text
from payintent.db.database import Executor, get_current_time
from payintent.operators import audit_store

LIST_LIMIT_MAX = 1_000
NAME_MAX = 100
_URL_CHARS_MAX = 2_048
_ISO_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_AGE = re.compile(r"([1-9][0-9]{0,4})(s|m|h|d)", re.ASCII)
_AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_RATE_DECIMALS_MAX = 8
_NOTE_CHARS_MAX = 500
_ID_MAX = 2**63 - 1


def check_name(field: str, name: str, length_max: int = NAME_MAX) -> None:
    """Check that a name is printable and has 1 to `length_max` characters."""
    if not 1 <= len(name) <= length_max or not name.isprintable():
        raise BadRequestError(f"{field} must have 1 to {length_max} printable characters")


def check_note(note: str, *, required: bool = True) -> None:
    """Check the length of a note. It may be blank unless `required`."""
    if required or note.strip():
        check_text("note", note.strip(), _NOTE_CHARS_MAX)


def check_iso_country(country: str) -> None:
    """Check the format of an ISO 3166-1 alpha-2 code. Unassigned codes are accepted."""
    if not _ISO_COUNTRY.fullmatch(country):
        raise BadRequestError(f"country {quote_input(country)} must be two capital letters")


def check_viewer_country(country: str) -> None:
    """Check a country code that a CDN can send. Cloudflare sends `T1` for Tor."""
    if country != TOR:
        check_iso_country(country)


def check_market(countries: Sequence[str] | None, currencies: Sequence[str] | None) -> None:
    """Check that countries and currencies are supported, and that neither list is empty."""
    for field, values, supported in (
        ("countries", countries, COUNTRIES),
        ("currencies", currencies, TENDER),
    ):
        if values is None:
            continue
        if not values:
            raise BadRequestError(f"{field} must not be empty")
        if unsupported := ", ".join(sorted(set(values) - supported.keys())):
            raise BadRequestError(f"unsupported {field}: {quote_input(unsupported)}")


def check_rate(field: str, rate: Decimal) -> None:
    """Check that a rate is between 0 and 1 with at most eight decimals. `0.07` means 7 %."""
    if not rate.is_finite() or not 0 <= rate <= 1:
        raise BadRequestError(f"{field} must be between 0 and 1; 0.07 means 7 %")
    if rate != round(rate, _RATE_DECIMALS_MAX):
        raise BadRequestError(f"{field} must have at most {_RATE_DECIMALS_MAX} decimals")


def check_web_url(field: str, url: str, *, sandbox: bool) -> None:
    """Check a URL. Outside the sandbox, it must use https."""
    if not _is_url(url, allows_http=sandbox):
        raise BadRequestError(f"{field} must be an https URL")


def check_shop_url(field: str, url: str, *, sandbox: bool) -> None:
    """Check the URL of a shop page. It may use http on a loopback host, for development."""
    if not _is_url(url, allows_http=sandbox or is_confidential(url)):
        raise BadRequestError(f"{field} must be an https URL, or an http URL for localhost")


def check_colour(field: str, colour: str) -> None:
    if not _COLOUR.fullmatch(colour):
        raise BadRequestError(f"{field} {quote_input(colour)} is not a colour; use #rrggbb")


def check_origin(origin: str, *, sandbox: bool) -> None:
    """Check an origin of the shop, such as `https://shop.example.com`; see `check_shop_url`."""
    allows_http = sandbox or is_confidential(origin)
    if not _is_url(origin, allows_http=allows_http) or set("/?#") & set(origin.partition("://")[2]):
        raise BadRequestError(
            f"{quote_input(origin)} is not an origin; use the form https://example.com"
        )


async def check_merchant(database: Executor, merchant_id: int | None) -> None:
    """Raise `NOT_FOUND` for an unknown merchant. None is accepted."""
    if merchant_id is None:
        return
    if not is_database_id(merchant_id) or not await audit_store.merchant_exists(
        database, merchant_id
    ):
        raise NotFoundError(f"no merchant {merchant_id}")


def is_database_id(number: int) -> bool:
    """Return whether a number is within the range of database ids."""
    return 0 < number <= _ID_MAX


def parse_before(prefix: str, text: str | None, field: str = "before") -> UUID | None:
    """Parse a list cursor, the last id on the previous page. Returns None for None."""
    if text is None:
        return None
    uuid = ids.parse_id(prefix, text)
    if uuid is None:
        raise BadRequestError(f"{field}: {quote_input(text)} is not an id of the form {prefix}_…")
    return uuid


def parse_day(field: str, text: str | None) -> date | None:
    """Parse a date such as 2026-01-31. Returns None for None."""
    if text is None:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise BadRequestError(f"{field} must be a date such as 2026-01-31, not {quote_input(text)}")


def check_after(merchant_id: int) -> None:
    """Check a merchant id that is used as a list cursor. 0 precedes the first merchant."""
    if not 0 <= merchant_id <= _ID_MAX:
        raise BadRequestError("after must be a merchant ID")


def check_list_limit(limit: int) -> None:
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise BadRequestError(f"limit must be from 1 to {LIST_LIMIT_MAX}")


def _is_url(url: str, *, allows_http: bool) -> bool:
    if len(url) > _URL_CHARS_MAX or not url.isprintable() or any(char in url for char in ' \\"<>'):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if the port is invalid
    except ValueError:
        return False
    schemes = {"https", "http"} if allows_http else {"https"}
    return parts.scheme in schemes and parse_web_origin(url) is not None


def to_utc(field: str, time: datetime | None) -> datetime | None:
    """Convert a time to UTC. A time without a zone is assumed to be UTC."""
    if time is None:
        return None
    try:
        return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
    except OverflowError as error:
        raise BadRequestError(f"{field} is out of range in UTC") from error


class ParameterForm(TypedDict, total=False):
    """Differences in name and input format between a CLI parameter and its field."""

    name: str  # for example, `count` for the field `count_max`
    metavar: str  # the argument's name in the help
    flags: str  # option names of a boolean, such as `--enabled/--disabled`
    min: int
    max: int
    repeated_as: (
        str  # name of a repeatable option for a list; the default is a comma-separated list
    )
    #: Whether the help omits a choice's values. The exit status for an invalid value is then 1.
    any_text: bool
    is_file: bool  # whether a list is read from a file with one item per line
    defaults_to_reason: bool  # whether the default is the operator's reason


class Parameter(ParameterForm):
    """The parameter settings of a field, stored in `msgspec.Meta.extra`."""

    positional: bool


def argument(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": True, **form})


def option(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": False, **form})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationField:
    """A field that users can set. `type` excludes None: it is `int` for `int | None`."""

    name: str
    type: Any
    is_required: bool
    default: Any
    help_text: str
    parameter: Parameter


def list_fields(operation: type[msgspec.Struct]) -> Iterator[OperationField]:
    """List the annotated fields of an operation."""
    for field in msgspec.structs.fields(operation):
        if get_origin(field.type) is not Annotated:
            continue
        annotated_type, meta = get_args(field.type)
        yield OperationField(
            name=field.name,
            type=_without_none(annotated_type),
            is_required=field.required,
            default=None if field.required else field.default,
            help_text=meta.description,
            parameter=cast("Parameter", meta.extra),
        )


def summarize(operation: type[msgspec.Struct]) -> str:
    """Return the first paragraph of an operation's docstring."""
    return inspect.cleandoc(operation.__doc__ or "").partition("\n\n")[0]


def _without_none(field_type: Any) -> Any:
    if get_origin(field_type) not in (Union, UnionType):
        return field_type
    [member] = [member for member in get_args(field_type) if member is not NoneType]
    return member


MerchantId = Annotated[int, argument("The merchant ID.")]
MerchantFilter = Annotated[int | None, option("Only entries for this merchant.", name="merchant")]
OwnerId = Annotated[
    int | None, option("The owning merchant. Default: the platform.", name="merchant")
]
Purpose = Annotated[str, option("A descriptive name.")]
IsoCountry = Annotated[str, argument("A country code of two capital letters.")]
ViewerCountry = Annotated[str, argument("A country code; T1 means Tor, and XX an unknown country.")]
ListLimit = Annotated[int, option("Maximum number of entries.", min=1, max=LIST_LIMIT_MAX)]


ListOrder = Annotated[
    Literal["newest", "oldest"],
    option("`newest` or `oldest` first."),
]


def check_cursor(order: str, before: object, after: object) -> None:
    """Raise `BAD_REQUEST` if the cursor does not match the order."""
    name, cursor = ("before", before) if order == "oldest" else ("after", after)
    if cursor is not None:
        raise BadRequestError(f"{name} cannot be combined with the order `{order}`")


CreatedSince = Annotated[datetime | None, option("Created at or after this time (UTC).")]
CreatedBefore = Annotated[datetime | None, option("Created before this time (UTC).")]
OlderThan = Annotated[
    str | None, option("Created at least this long ago, such as 90s, 30m, 2h or 1d.")
]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range. None means unbounded."""

    since: datetime | None
    until: datetime | None


async def parse_time_range(
    database: Executor, since: datetime | None, until: datetime | None, older_than: str | None
) -> TimeRange:
    """Combine list filters into a time range that satisfies all of them. Raises `BAD_REQUEST`."""
    since, until = to_utc("since", since), to_utc("until", until)
    if older_than is None:
        return TimeRange(since, until)
    age = _AGE.fullmatch(older_than)
    if age is None:
        raise BadRequestError("older_than must be a number followed by s, m, h or d, such as 30m")
    latest = await get_current_time(database) - timedelta(**{_AGE_UNITS[age[2]]: int(age[1])})
    return TimeRange(since, latest if until is None else min(latest, until))
