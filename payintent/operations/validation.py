"""Input checks that several operations share. All raise `BAD_REQUEST` unless noted."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from urllib.parse import urlsplit
from uuid import UUID

from payintent.domain import ids
from payintent.domain.countries import COUNTRIES, TOR
from payintent.domain.currencies import TENDER
from payintent.domain.errors import BadRequestError, NotFoundError, quote_input
from payintent.domain.merchant import Merchant
from payintent.domain.web_origin import web_origin
from payintent.storage import audit, merchants, payments
from payintent.storage.database import Executor
from payintent.storage.payments import PaymentSnapshot

LISTED_MAX = 1_000
NAME_MAX = 100
_URL_MAX = 2_048
_ISO_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_RATE_DECIMALS_MAX = 8
_NOTE_MAX = 500
_ID_MAX = 2**63 - 1


def check_name(what: str, name: str, longest: int = NAME_MAX) -> None:
    """Check a name: its length, and that it is printable."""
    if not 1 <= len(name) <= longest or not name.isprintable():
        raise BadRequestError(f"{what} must have 1 to {longest} printable characters")


def check_note(note: str, *, needed: bool = True) -> None:
    """Check the length of a note; if `needed`, it must not be blank."""
    is_missing = needed and not note.strip()
    if is_missing or len(note.strip()) > _NOTE_MAX or "\x00" in note:
        raise BadRequestError(f"note must have 1 to {_NOTE_MAX} characters")


def check_text_if_given(name: str, text: str | None, longest: int) -> None:
    """Check the length of an optional text."""
    if text is not None and (not 1 <= len(text) <= longest or "\x00" in text):
        raise BadRequestError(f"{name} must have 1 to {longest} characters")


def check_iso_country(country: str) -> None:
    """Check the form of an ISO 3166-1 alpha-2 code; the country need not exist."""
    if not _ISO_COUNTRY.fullmatch(country):
        raise BadRequestError(f"country {quote_input(country)} is not two capital letters")


def check_viewer_country(country: str) -> None:
    """Check a country code from the edge network; Cloudflare sends `T1` for Tor."""
    if country != TOR:
        check_iso_country(country)


def check_market(countries: Sequence[str] | None, currencies: Sequence[str] | None) -> None:
    """Check that countries and currencies are supported, and that no list is empty."""
    for what, values, allowed in (
        ("countries", countries, COUNTRIES),
        ("currencies", currencies, TENDER),
    ):
        if values is None:
            continue
        if not values:
            raise BadRequestError(f"{what} must not be empty")
        if unsupported := ", ".join(sorted(set(values) - allowed.keys())):
            raise BadRequestError(f"{what} are not supported: {quote_input(unsupported)}")


def check_rate(what: str, rate: Decimal) -> None:
    """Check a rate from 0 to 1 with at most eight decimals; `0.07` is 7 %."""
    if not rate.is_finite() or not 0 <= rate <= 1:
        raise BadRequestError(f"{what} must be from 0 to 1, such as 0.07 for 7 %")
    if rate != round(rate, _RATE_DECIMALS_MAX):
        raise BadRequestError(f"{what} must have at most {_RATE_DECIMALS_MAX} decimals")


def check_web_url(what: str, url: str, *, sandbox: bool) -> None:
    """Check a URL; outside the sandbox it must use https."""
    if not _is_url(url, sandbox=sandbox):
        raise BadRequestError(f"{what} must be an https URL")


def check_colour(what: str, colour: str) -> None:
    if not _COLOUR.fullmatch(colour):
        raise BadRequestError(f"{what} {quote_input(colour)} is not a colour such as #0b5bd3")


def check_origin(origin: str, *, sandbox: bool) -> None:
    """Check an origin: scheme and host without a path, such as `https://shop.example.com`."""
    if not _is_url(origin, sandbox=sandbox) or set("/?#") & set(origin.partition("://")[2]):
        raise BadRequestError(f"{quote_input(origin)} is not an origin such as https://example.com")


async def require_merchant(database: Executor, merchant_id: int) -> Merchant:
    merchant = await merchants.get(database, merchant_id) if is_database_id(merchant_id) else None
    if merchant is None:
        raise NotFoundError(f"no merchant {merchant_id}")
    return merchant


async def check_merchant(database: Executor, merchant_id: int | None) -> None:
    """Raise `NOT_FOUND` for an unknown merchant; None passes."""
    if merchant_id is None:
        return
    if not is_database_id(merchant_id) or not await audit.has_merchant(database, merchant_id):
        raise NotFoundError(f"no merchant {merchant_id}")


async def require_payment(database: Executor, payment_id: str) -> PaymentSnapshot:
    """Return a payment with its session; raise `NOT_FOUND` if it does not exist."""
    uuid = ids.parse_id(ids.PAYMENT, payment_id)
    snapshot = await payments.get(database, uuid) if uuid else None
    if snapshot is None:
        raise NotFoundError(f"no payment {quote_input(payment_id)}")
    return snapshot


def is_database_id(number: int) -> bool:
    """Return True if a number is in the range of the database's ids."""
    return 0 < number <= _ID_MAX


def parse_before(prefix: str, text: str | None, name: str = "before") -> UUID | None:
    """Parse the last id of a list page; None stays None."""
    if text is None:
        return None
    uuid = ids.parse_id(prefix, text)
    if uuid is None:
        raise BadRequestError(f"{name}: {quote_input(text)} is not an id such as {prefix}_…")
    return uuid


def read_day(what: str, text: str | None) -> date | None:
    """Parse a day such as 2026-01-31; None stays None."""
    if text is None:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise BadRequestError(f"{what} must be a day such as 2026-01-31, not {quote_input(text)}")


def check_after(merchant_id: int) -> None:
    """Check a merchant number as a list cursor; 0 precedes all merchants."""
    if not 0 <= merchant_id <= _ID_MAX:
        raise BadRequestError("after must be the number of a merchant")


def check_list_limit(limit: int) -> None:
    if not 1 <= limit <= LISTED_MAX:
        raise BadRequestError(f"limit must be from 1 to {LISTED_MAX}")


def _is_url(url: str, *, sandbox: bool) -> bool:
    if len(url) > _URL_MAX or not url.isprintable() or any(char in url for char in ' \\"<>'):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # an invalid port fails here
    except ValueError:
        return False
    schemes = {"https", "http"} if sandbox else {"https"}
    return parts.scheme in schemes and web_origin(url) is not None


def as_utc(name: str, moment: datetime | None) -> datetime | None:
    """Convert a time to UTC; a time without a zone is UTC already."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except OverflowError as error:
        raise BadRequestError(f"{name} is out of range in UTC") from error
