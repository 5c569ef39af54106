"""Merchants: created, described, their callback URLs and secrets."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal
from zoneinfo import available_timezones

from payintent.domain.activation import ActivationStatus
from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import BadRequestError
from payintent.domain.merchant import Merchant
from payintent.domain.price import TaxCountry, TaxManager
from payintent.domain.web_origin import web_origin
from payintent.operations.base import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_agreed,
    details,
)
from payintent.operations.callback_secret import add_callback_secret
from payintent.operations.fields import MerchantId, argument, option
from payintent.operations.json_values import to_json_value
from payintent.operations.keyring import ensure_writing_key
from payintent.operations.keys import issue_api_key
from payintent.operations.offer_all_methods import offer_all_methods
from payintent.operations.validation import (
    check_colour,
    check_name,
    check_origin,
    check_web_url,
    quote_input,
    require_merchant,
)
from payintent.storage import callback_secrets, merchants
from payintent.storage.database import Executor, Tx
from payintent.webhooks.egress import (
    EgressRefusedError,
    EgressRules,
    check_callback_registration,
    egress_rules,
)

OVERLAP_DEFAULT_S = 24 * 3600
OVERLAP_MAX_S = 7 * 24 * 3600
_NAME_MAX = 200
_ORIGINS_MAX = 20
#: Fields of a profile that lead buyers elsewhere, or decide which tax they pay.
_LEADS_ELSEWHERE = (
    *("return_url", "support_url", "terms_url"),
    *("tax_manager", "tax_country", "default_country"),
)
_LOCALE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", re.ASCII)
_AUTO_REFUND = option("Give back at once money that no payment may own; new merchants have it.")
_ALLOW_HTTP = option(
    "Whether its callback URL may be http; outside the sandbox it must be https without this."
)


@dataclass(frozen=True, slots=True)
class CreatedMerchant:
    """A new merchant with its API key and callback secret, which are shown only now."""

    merchant: Merchant
    api_key: str
    callback_secret: str


@dataclass(frozen=True, slots=True)
class IssuedCallbackSecret:
    """A new callback secret, shown only now."""

    id: int  # the merchant's
    callback_secret: str


class CreateMerchant(ChangeOperation[CreatedMerchant], frozen=True, kw_only=True):
    """Register a merchant; prints its API key and callback secret, this once.

    The sandbox's are in service at once; others go through activation.
    """

    action: ClassVar[str] = "merchant.create"
    name: Annotated[str, option("What buyers read: Pay NAME.")]
    callback_url: Annotated[str | None, option("Where webhooks go.")] = None
    methods: Annotated[
        Literal["none", "all"],
        option("`all`: offer whatever the platform's accounts can do; else `none`.", any_text=True),
    ] = "none"
    auto_refund: Annotated[bool, _AUTO_REFUND] = True
    allow_http: Annotated[bool, _ALLOW_HTTP] = False

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True over HTTP, where secrets would be shown to the holder of one token alone."""
        return context.actor.over_http

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            *await super().changes(context),
            "the approver is shown its API key and its callback secret, and hands them over",
        ]

    async def check(self, context: OperationContext) -> None:
        check_name("name", self.name, _NAME_MAX)
        allow_http = self.allow_http or context.settings.sandbox
        await check_merchant_callback_url(
            self.callback_url, egress_rules(context.settings), allow_http=allow_http
        )

    async def apply(self, context: OperationContext, tx: Tx) -> CreatedMerchant:
        await ensure_writing_key(tx, context.encryption)
        activation = ActivationStatus.ACTIVE if context.settings.sandbox else ActivationStatus.NEW
        merchant = await merchants.add(
            tx,
            self.name,
            self.callback_url,
            activation,
            auto_refund=self.auto_refund,
            allow_http=self.allow_http
            or (context.settings.sandbox and _is_http(self.callback_url)),
        )
        key = await issue_api_key(context, tx, merchant.id, "first")
        secret = await add_callback_secret(context, tx, merchant.id)
        if self.methods == "all":
            await offer_all_methods(tx, merchant.id, livemode=True)
        return CreatedMerchant(merchant, key, secret)

    def merchant_id_of(self, result: CreatedMerchant) -> int:
        return result.merchant.id


class ShowMerchant(ReadOperation[Merchant], frozen=True, kw_only=True):
    """Show one merchant."""

    action: ClassVar[str] = "merchant.show"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> Merchant:
        return await require_merchant(context.database, self.merchant_id)


class SetMerchantProfile(ChangeOperation[Merchant], frozen=True, kw_only=True):
    """Describe a merchant; what is not given stays, an empty address clears it."""

    action: ClassVar[str] = "merchant.profile"
    merchant_id: MerchantId
    name: Annotated[str | None, option("What buyers read.")] = None
    logo_url: Annotated[str | None, option("Shown on the checkout.")] = None
    accent_colour: Annotated[
        str | None,
        option("Of the checkout's buttons and links, such as #0b5bd3; empty: the usual one."),
    ] = None
    support_url: Annotated[str | None, option("Where buyers find help.")] = None
    terms_url: Annotated[str | None, option("Where buyers find the terms of the sale.")] = None
    return_url: Annotated[str | None, option("Where buyers go back to.")] = None
    allowed_origins: Annotated[
        list[str] | None,
        option(
            "Where selections may return to and widgets may stand; repeat it.",
            repeated_as="allowed_origin",
        ),
    ] = None
    default_country: Annotated[
        str | None,
        option("Where quotes are for, if the buyer names no country; one of the 53."),
    ] = None
    locale: Annotated[str | None, option("The checkout's language, such as ja.")] = None
    tax_manager: Annotated[
        TaxManager | None,
        option("SERVICE: quotes have tax by the operator's rates; NONE: they have none."),
    ] = None
    tax_country: Annotated[
        TaxCountry | None,
        option("Whose rate applies: of the buyer's selection, or of the default country."),
    ] = None
    auto_refund: Annotated[bool | None, _AUTO_REFUND] = None
    mail_receipts: Annotated[
        bool | None, option("Mail a receipt to buyers whose e-mail address is known.")
    ] = None
    time_zone: Annotated[
        str | None, option("In which the days of its statements end, such as Asia/Bangkok.")
    ] = None

    async def check(self, context: OperationContext) -> None:
        if self.mail_receipts and not context.settings.sends_mail:
            raise BadRequestError("mail_receipts needs a mail server, in PAYINTENT_SMTP_HOST")
        if self.name is not None:
            check_name("name", self.name, _NAME_MAX)
        for what in ("logo_url", "support_url", "terms_url", "return_url"):
            if value := getattr(self, what):
                check_web_url(what, value, sandbox=context.settings.sandbox)
        if self.accent_colour:
            check_colour("accent_colour", self.accent_colour)
        if self.allowed_origins is not None and len(self.allowed_origins) > _ORIGINS_MAX:
            raise BadRequestError(f"there are at most {_ORIGINS_MAX} allowed origins")
        for origin in self.allowed_origins or ():
            check_origin(origin, sandbox=context.settings.sandbox)
        await self._check_place(context)

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True once the merchant is in service, for what leads buyers or taxes elsewhere."""
        merchant = await require_merchant(context.database, self.merchant_id)
        return await self._needs_two(context.database, merchant)

    async def _needs_two(self, database: Executor, before: Merchant) -> bool:
        """To take an address or an origin away leads nobody elsewhere: one person does it."""
        origins = frozenset(filter(None, map(web_origin, self.allowed_origins or ())))
        leads_elsewhere = not origins <= before.origins or any(
            getattr(self, name) and getattr(self, name) != getattr(before, name)
            for name in _LEADS_ELSEWHERE
        )
        return leads_elsewhere and await merchants.is_in_service(database, before.id)

    async def changes(self, context: OperationContext) -> list[str]:
        before = await require_merchant(context.database, self.merchant_id)
        shown = to_json_value(before)
        return [
            f"{name} of merchant {before.id} ({quote_input(before.name)}) becomes "
            f"{value or 'empty'}; it is {shown[name] or 'empty'}"
            for name, value in details(self).items()
            if name != "merchant_id"
        ]

    async def _check_place(self, context: OperationContext) -> None:
        """Refuse a country, a language and a time zone that are none."""
        if self.default_country is not None and self.default_country not in COUNTRIES:
            raise BadRequestError(f"country {quote_input(self.default_country)} is not known")
        if self.locale is not None and not _LOCALE.fullmatch(self.locale):
            raise BadRequestError(f"locale {quote_input(self.locale)} is no language tag")
        if self.time_zone is not None:
            await _check_time_zone(context.database, self.time_zone)

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        before = await _locked(tx, self.merchant_id)
        check_agreed(context, needs_approval=await self._needs_two(tx, before))
        given = {
            name: value or None if name.endswith("_url") or name == "accent_colour" else value
            for name in self.__struct_fields__
            if name != "merchant_id" and (value := getattr(self, name)) is not None
        }
        if self.accent_colour:
            given["accent_colour"] = self.accent_colour.lower()
        if self.allowed_origins is not None:
            # In the form that browsers send, with which others are compared.
            origins = filter(None, map(web_origin, self.allowed_origins))
            given["allowed_origins"] = tuple(origins)
        merchant = replace(before, **given)
        await merchants.set_profile(tx, merchant)
        return merchant


class SetCallbackUrl(ChangeOperation[Merchant], frozen=True, kw_only=True):
    """Send a merchant's webhooks elsewhere; `webhooks replay-missed` sends what was skipped."""

    action: ClassVar[str] = "merchant.set-callback-url"
    merchant_id: MerchantId
    callback_url: Annotated[str | None, argument("Left out: keep events, send none.")] = None
    allow_http: Annotated[bool | None, _ALLOW_HTTP] = None

    async def check(self, context: OperationContext) -> None:
        merchant = await require_merchant(context.database, self.merchant_id)
        allow_http = self._allows_http(merchant) or context.settings.sandbox
        await check_merchant_callback_url(
            self.callback_url, egress_rules(context.settings), allow_http=allow_http
        )

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        """Set the URL, unless the permission for http was withdrawn meanwhile."""
        merchant = await _locked(tx, self.merchant_id)
        check_agreed(context, needs_approval=await self._needs_two(tx, merchant))
        allow_http = self._allows_http(merchant) or (
            context.settings.sandbox and _is_http(self.callback_url)
        )
        _check_https(self.callback_url, allow_http=allow_http)
        url = self.callback_url
        await merchants.set_callback_url(tx, self.merchant_id, url, allow_http=allow_http)
        return replace(merchant, callback_url=url, allow_http=allow_http)

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True once the merchant is in service, if events go elsewhere, or as clear text."""
        merchant = await require_merchant(context.database, self.merchant_id)
        return await self._needs_two(context.database, merchant)

    async def _needs_two(self, database: Executor, before: Merchant) -> bool:
        """To stop sending sends nothing elsewhere: one person does it."""
        elsewhere = self.callback_url is not None and self.callback_url != before.callback_url
        allows_http = bool(self.allow_http) and not before.allow_http
        return (elsewhere or allows_http) and await merchants.is_in_service(database, before.id)

    async def changes(self, context: OperationContext) -> list[str]:
        before = await require_merchant(context.database, self.merchant_id)
        name = f"merchant {before.id} ({quote_input(before.name)})"
        now = before.callback_url or "nowhere"
        changes = [f"events of {name} go to {self.callback_url or 'nowhere'}; now they go to {now}"]
        if self.allow_http is not None:
            changes.append(
                f"allow_http of {name} becomes {self.allow_http}; it is {before.allow_http}"
            )
        return changes

    def _allows_http(self, merchant: Merchant) -> bool:
        return merchant.allow_http if self.allow_http is None else self.allow_http


class RotateCallbackSecret(ChangeOperation[IssuedCallbackSecret], frozen=True, kw_only=True):
    """Make a new callback secret; prints it, this once.

    The old ones sign along until the overlap is over.
    """

    action: ClassVar[str] = "merchant.rotate-secret"
    is_destructive: ClassVar[bool] = True
    merchant_id: MerchantId
    overlap_s: Annotated[int, option("For how many seconds the old one signs along.")] = (
        OVERLAP_DEFAULT_S
    )

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True over HTTP, where one token's holder alone would be shown the secret."""
        return context.actor.over_http

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        return [
            (
                f"merchant {merchant.id} ({quote_input(merchant.name)}) gets another callback "
                f"secret; the old one signs along for {self.overlap_s} seconds"
            ),
            "the approver is shown the secret, and hands it over",
        ]

    async def check(self, context: OperationContext) -> None:
        if not 0 <= self.overlap_s <= OVERLAP_MAX_S:
            raise BadRequestError(f"overlap_s must be from 0 to {OVERLAP_MAX_S} seconds")
        await require_merchant(context.database, self.merchant_id)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedCallbackSecret:
        """Let the old secrets expire after the overlap, and store the new one."""
        await ensure_writing_key(tx, context.encryption)
        await callback_secrets.retire_secrets(tx, self.merchant_id, self.overlap_s)
        return IssuedCallbackSecret(
            self.merchant_id, await add_callback_secret(context, tx, self.merchant_id)
        )


async def check_merchant_callback_url(
    url: str | None, egress: EgressRules, *, allow_http: bool
) -> None:
    """Raise `BAD_REQUEST` for a URL that webhooks must not be sent to; its name is resolved."""
    if url is None:
        return
    _check_https(url, allow_http=allow_http)
    try:
        await check_callback_registration(url, egress)
    except EgressRefusedError as error:
        raise BadRequestError(f"callback_url is refused: {error.reason}") from error


def _check_https(url: str | None, *, allow_http: bool) -> None:
    if _is_http(url) and not allow_http:
        raise BadRequestError(
            "callback_url is refused: it must be https, or the merchant must be allowed http"
        )


def _is_http(url: str | None) -> bool:
    return url is not None and url.lower().startswith("http://")


async def _check_time_zone(database: Executor, name: str) -> None:
    """Refuse what is no time zone, for Python or for PostgreSQL: both say when a day ends."""
    if name not in available_timezones() or not await merchants.has_time_zone(database, name):
        raise BadRequestError(f"time_zone {quote_input(name)} is not known")


async def _locked(tx: Tx, merchant_id: int) -> Merchant:
    await require_merchant(tx, merchant_id)
    found = await merchants.lock(tx, merchant_id)
    assert found is not None  # noqa: S101 - merchants are never deleted
    return found
