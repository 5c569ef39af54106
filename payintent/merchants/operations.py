"""Operations on merchants: creation, profile, callback URL and callback secret."""

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from zoneinfo import available_timezones

from payintent.core.addresses import parse_web_origin
from payintent.core.countries import COUNTRIES
from payintent.core.errors import BadRequestError
from payintent.core.money import TENDER, format_rate
from payintent.core.texts import check_text
from payintent.db.database import Executor, Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.http.egress import (
    EgressRefusedError,
    EgressRules,
    check_callback_registration,
    make_egress_rules,
)
from payintent.merchants import store as merchant_store
from payintent.merchants.access_operations import issue_api_key
from payintent.merchants.callback_secrets import add_callback_secret
from payintent.merchants.model import ActivationStatus, Merchant, TaxCountry, TaxManager
from payintent.merchants.provisioning import add_platform_methods
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    MerchantId,
    argument,
    check_after,
    check_colour,
    check_list_limit,
    check_name,
    check_origin,
    check_shop_url,
    check_web_url,
    option,
    quote_input,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_approved,
    details,
    to_json_value,
)

_NAME_CHARS_MAX = 200
_ORIGINS_MAX = 20
#: Profile fields that redirect buyers or determine their tax.
_SENSITIVE_FIELDS = (
    *("return_url", "support_url", "terms_url"),
    *("tax_manager", "tax_country", "default_country"),
)
_LOCALE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", re.ASCII)
_AUTO_REFUND = option("Automatically refund money that does not belong to a payment.")
_ALLOW_HTTP = option("Allow an http callback URL. The sandbox always allows http.")


@dataclass(frozen=True, slots=True)
class CreatedMerchant:
    merchant: Merchant
    api_key: str
    callback_secret: str


class CreateMerchant(ChangeOperation[CreatedMerchant], frozen=True, kw_only=True):
    """Create a merchant. Its API key and callback secret are shown only once.

    In the sandbox, the merchant is ACTIVE immediately; otherwise it needs activation.
    """

    action: ClassVar[str] = "merchant.create"
    name: Annotated[str, option("The name shown to buyers, as in `Pay NAME`.")]
    callback_url: Annotated[str | None, option("The URL that receives webhooks.")] = None
    methods: Annotated[
        Literal["none", "all"],
        option(
            "`all` adds the default methods of all platform accounts; `none` adds no methods.",
            any_text=True,
        ),
    ] = "none"
    auto_refund: Annotated[bool, _AUTO_REFUND] = True
    allow_http: Annotated[bool, _ALLOW_HTTP] = False

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval over HTTP, so that a stolen token is not enough to reveal secrets."""
        return context.actor.uses_http

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            *await super().changes(context),
            "the API key and callback secret are shown to the approver, who must pass them on",
        ]

    async def check(self, context: OperationContext) -> None:
        check_name("name", self.name, _NAME_CHARS_MAX)
        allow_http = self.allow_http or context.settings.sandbox
        await check_merchant_callback_url(
            self.callback_url, make_egress_rules(context.settings), allow_http=allow_http
        )

    async def apply(self, context: OperationContext, tx: Tx) -> CreatedMerchant:
        await ensure_writing_key(tx, context.encryption)
        activation = ActivationStatus.ACTIVE if context.settings.sandbox else ActivationStatus.NEW
        merchant = await merchant_store.add(
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
            await add_platform_methods(tx, merchant.id, livemode=True)
        return CreatedMerchant(merchant, key, secret)

    def get_merchant_id(self, result: CreatedMerchant) -> int:
        return result.merchant.id


class ShowMerchant(ReadOperation[Merchant], frozen=True, kw_only=True):
    """Show a merchant."""

    action: ClassVar[str] = "merchant.show"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> Merchant:
        return await require_merchant(context.database, self.merchant_id)


class ListMerchants(ReadOperation[list[Merchant]], frozen=True, kw_only=True):
    """List merchants."""

    action: ClassVar[str] = "merchant.list"
    columns = ("id", "name", "livemode", "activation", "callback_url", "tax_manager")
    name: Annotated[str | None, option("Text that the name must contain.")] = None
    activation: Annotated[ActivationStatus | None, option("The activation status.")] = None
    after: Annotated[int, option("The last merchant ID on the previous page.", min=0)] = 0
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[Merchant]:
        check_list_limit(self.limit)
        check_text("name", self.name, _NAME_CHARS_MAX)
        check_after(self.after)
        return await merchant_store.list_merchants(
            context.database,
            self.limit,
            after=self.after,
            name=self.name,
            activation=self.activation,
        )


class MerchantChange(ChangeOperation[Merchant], frozen=True, kw_only=True):
    """A change that needs approval if it is sensitive and the merchant has gone live."""

    merchant_id: MerchantId

    def is_sensitive(self, merchant: Merchant) -> bool:
        raise NotImplementedError

    async def needs_approval(self, context: OperationContext) -> bool:
        merchant = await require_merchant(context.database, self.merchant_id)
        return await self._needs_approval(context.database, merchant)

    async def lock_merchant(self, context: OperationContext, tx: Tx) -> Merchant:
        """Lock the merchant. Raises `CONFLICT` if the change now needs approval but lacks it."""
        await require_merchant(tx, self.merchant_id)
        merchant = await merchant_store.lock(tx, self.merchant_id)
        assert merchant is not None  # noqa: S101 - merchants are never deleted
        check_approved(context, needs_approval=await self._needs_approval(tx, merchant))
        return merchant

    async def _needs_approval(self, database: Executor, merchant: Merchant) -> bool:
        is_sensitive = self.is_sensitive(merchant)
        return is_sensitive and await merchant_store.has_gone_live(database, merchant.id)


class SetMerchantProfile(MerchantChange, frozen=True, kw_only=True):
    """Change a merchant's profile. Omitted fields do not change. An empty URL clears its field."""

    action: ClassVar[str] = "merchant.profile"
    name: Annotated[str | None, option("The name shown to buyers.")] = None
    logo_url: Annotated[str | None, option("The logo on the checkout page.")] = None
    accent_colour: Annotated[
        str | None, option("The checkout page's colour, such as #0b5bd3; empty for the default.")
    ] = None
    support_url: Annotated[str | None, option("The support page for buyers.")] = None
    terms_url: Annotated[str | None, option("The terms of sale.")] = None
    return_url: Annotated[str | None, option("The page to which buyers return.")] = None
    allowed_origins: Annotated[
        list[str] | None,
        option(
            "An origin allowed for return URLs and embedded widgets; can be repeated.",
            repeated_as="allowed_origin",
        ),
    ] = None
    default_country: Annotated[
        str | None, option("The country for quotes if the buyer does not select a country.")
    ] = None
    locale: Annotated[str | None, option("The checkout page's language, such as ja.")] = None
    tax_manager: Annotated[
        TaxManager | None,
        option("SERVICE adds tax at the operator's rates to quotes; NONE adds no tax."),
    ] = None
    tax_country: Annotated[
        TaxCountry | None,
        option("The country whose tax rate applies: the buyer's, or the merchant's default."),
    ] = None
    auto_refund: Annotated[bool | None, _AUTO_REFUND] = None
    mail_receipts: Annotated[
        bool | None,
        option("Send receipts and refund links by email to buyers with an email address."),
    ] = None
    time_zone: Annotated[
        str | None, option("The time zone of statements, such as Asia/Bangkok.")
    ] = None

    async def check(self, context: OperationContext) -> None:
        if self.mail_receipts and not context.settings.sends_mail:
            raise BadRequestError("mail_receipts requires a mail server: set PAYINTENT_SMTP_HOST")
        if self.name is not None:
            check_name("name", self.name, _NAME_CHARS_MAX)
        for field in ("logo_url", "support_url", "terms_url"):
            if url := getattr(self, field):
                check_web_url(field, url, sandbox=context.settings.sandbox)
        if self.return_url:
            check_shop_url("return_url", self.return_url, sandbox=context.settings.sandbox)
        if self.accent_colour:
            check_colour("accent_colour", self.accent_colour)
        if self.allowed_origins is not None and len(self.allowed_origins) > _ORIGINS_MAX:
            raise BadRequestError(f"allowed_origins must have at most {_ORIGINS_MAX} origins")
        for origin in self.allowed_origins or ():
            check_origin(origin, sandbox=context.settings.sandbox)
        await self._check_locale(context)

    def is_sensitive(self, merchant: Merchant) -> bool:
        """Return whether buyers could be redirected elsewhere or taxed differently."""
        origins = frozenset(filter(None, map(parse_web_origin, self.allowed_origins or ())))
        return not origins <= merchant.origins or any(
            getattr(self, name) and getattr(self, name) != getattr(merchant, name)
            for name in _SENSITIVE_FIELDS
        )

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        values = to_json_value(merchant)
        return [
            f"{name} of {merchant.title} changes from "
            f"{values[name] or 'empty'} to {value or 'empty'}"
            for name, value in details(self).items()
            if name != "merchant_id"
        ]

    async def _check_locale(self, context: OperationContext) -> None:
        if self.default_country is not None and self.default_country not in COUNTRIES:
            raise BadRequestError(f"country {quote_input(self.default_country)} is not supported")
        if self.locale is not None and not _LOCALE.fullmatch(self.locale):
            raise BadRequestError(f"locale {quote_input(self.locale)} is not a language tag")
        # Both Python and PostgreSQL compute days in the time zone, so both must support it.
        if self.time_zone is not None and not (
            self.time_zone in available_timezones()
            and await merchant_store.time_zone_exists(context.database, self.time_zone)
        ):
            raise BadRequestError(f"time_zone {quote_input(self.time_zone)} is not a time zone")

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        merchant = await self.lock_merchant(context, tx)
        changes = {
            name: value or None if name.endswith("_url") or name == "accent_colour" else value
            for name in self.__struct_fields__
            if name != "merchant_id" and (value := getattr(self, name)) is not None
        }
        if self.accent_colour:
            changes["accent_colour"] = self.accent_colour.lower()
        if self.allowed_origins is not None:
            # Browsers send origins in this normalized form.
            changes["allowed_origins"] = tuple(
                filter(None, map(parse_web_origin, self.allowed_origins))
            )
        merchant = replace(merchant, **changes)
        await merchant_store.set_profile(tx, merchant)
        return merchant


class SetCallbackUrl(MerchantChange, frozen=True, kw_only=True):
    """Set a merchant's callback URL. `webhooks replay-missed` sends events that were skipped."""

    action: ClassVar[str] = "merchant.set-callback-url"
    callback_url: Annotated[
        str | None, argument("The URL. Default: none; events are then stored but not sent.")
    ] = None
    allow_http: Annotated[bool | None, _ALLOW_HTTP] = None

    async def check(self, context: OperationContext) -> None:
        merchant = await require_merchant(context.database, self.merchant_id)
        allow_http = self._allows_http(merchant) or context.settings.sandbox
        rules = make_egress_rules(context.settings, is_public_only=context.actor.is_member)
        await check_merchant_callback_url(self.callback_url, rules, allow_http=allow_http)

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        """Set the URL. Raises `BAD_REQUEST` if http is no longer allowed."""
        merchant = await self.lock_merchant(context, tx)
        allow_http = self._allows_http(merchant) or (
            context.settings.sandbox and _is_http(self.callback_url)
        )
        _check_https(self.callback_url, allow_http=allow_http)
        url = self.callback_url
        by_member = context.actor.is_member
        await merchant_store.set_callback_url(
            tx, self.merchant_id, url, allow_http=allow_http, by_member=by_member
        )
        return replace(merchant, callback_url=url, allow_http=allow_http)

    def is_sensitive(self, merchant: Merchant) -> bool:
        """Return whether events would be redirected or could be sent unencrypted."""
        redirects_events = self.callback_url not in (None, merchant.callback_url)
        return redirects_events or (bool(self.allow_http) and not merchant.allow_http)

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        old_url, new_url = merchant.callback_url or "none", self.callback_url or "none"
        changes = [f"the callback URL of {merchant.title} changes from {old_url} to {new_url}"]
        if self.allow_http is not None:
            change = f"changes from {merchant.allow_http} to {self.allow_http}"
            changes.append(f"allow_http of {merchant.title} {change}")
        return changes

    def _allows_http(self, merchant: Merchant) -> bool:
        return merchant.allow_http if self.allow_http is None else self.allow_http


async def check_merchant_callback_url(
    url: str | None, egress: EgressRules, *, allow_http: bool
) -> None:
    """Resolve the URL's host and raise `BAD_REQUEST` if the URL must not receive webhooks."""
    if url is None:
        return
    _check_https(url, allow_http=allow_http)
    try:
        await check_callback_registration(url, egress)
    except EgressRefusedError as error:
        raise BadRequestError(f"callback_url is not allowed: {error.reason}") from error


def _check_https(url: str | None, *, allow_http: bool) -> None:
    if _is_http(url) and not allow_http:
        raise BadRequestError("callback_url must be https unless allow_http is set")


def _is_http(url: str | None) -> bool:
    return url is not None and url.lower().startswith("http://")


_AMOUNT = re.compile(r"[0-9]{1,18}(?:\.([0-9]{1,18}))?", re.ASCII)


class SetRefundThreshold(MerchantChange, frozen=True, kw_only=True):
    """Set the daily amount above which a merchant's gateway refunds need approval."""

    action: ClassVar[str] = "merchant.set-refund-threshold"
    currency: Annotated[str, argument("A currency such as THB.")]
    above: Annotated[str | None, argument("The amount per day. Default: no threshold.")] = None

    def is_sensitive(self, merchant: Merchant) -> bool:
        """Return whether larger refunds would become possible without approval."""
        threshold = merchant.refund_approval_above.get(self.currency)
        if threshold is None:
            return False
        return self.above is None or Decimal(self.above) > Decimal(threshold)

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        threshold = merchant.refund_approval_above.get(self.currency, "none")
        change = f"changes from {threshold} to {self.above or 'none'}"
        return [f"the {self.currency} refund threshold of {merchant.title} {change}"]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)
        if self.currency not in TENDER:
            raise BadRequestError(f"currency {quote_input(self.currency)} is not supported")
        if self.above is None:
            return
        amount = _AMOUNT.fullmatch(self.above)
        decimals = TENDER[self.currency].amount_decimals
        if amount is None or len(amount[1] or "") > decimals:
            raise BadRequestError(
                f"above must be an amount of {self.currency} with at most {decimals} decimals"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        """Store the threshold. Refunds that already await approval are not affected."""
        merchant = await self.lock_merchant(context, tx)
        thresholds = dict(merchant.refund_approval_above)
        thresholds.pop(self.currency, None)
        if self.above is not None:
            thresholds[self.currency] = self.above
        await merchant_store.set_refund_thresholds(tx, self.merchant_id, thresholds)
        return replace(merchant, refund_approval_above=thresholds)


_TOLERANCE_DECIMALS = 3


class SetDepositTolerance(MerchantChange, frozen=True, kw_only=True):
    """Set the maximum shortfall with which a deposit still counts as full payment.

    The change also applies to open payments that have not been paid in full.
    """

    action: ClassVar[str] = "merchant.set-deposit-tolerance"
    percent: Annotated[
        Decimal, argument("Percent of the amount, from 0 to 1, such as 0.5.", metavar="PERCENT")
    ]

    def is_sensitive(self, merchant: Merchant) -> bool:
        """Return whether buyers could pay less than before."""
        return self.percent > merchant.deposit_tolerance

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        change = f"{format_rate(merchant.deposit_tolerance)} % to {format_rate(self.percent)} %"
        return [f"the deposit tolerance of {merchant.title} changes from {change}"]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)
        is_valid = self.percent.is_finite() and 0 <= self.percent <= 1
        if not is_valid or self.percent != round(self.percent, _TOLERANCE_DECIMALS):
            raise BadRequestError("percent must be from 0 to 1, with at most 3 decimals")

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        merchant = await self.lock_merchant(context, tx)
        await merchant_store.set_deposit_tolerance(tx, self.merchant_id, self.percent)
        return replace(merchant, deposit_tolerance=self.percent)
