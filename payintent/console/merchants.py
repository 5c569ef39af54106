"""Pages for the merchant list, and for one merchant's activation and settings."""

from typing import Any

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.lists import PAGE_ROWS, change_query, get_operation_url, read_query
from payintent.console.operation_pages import make_page_actions
from payintent.console.rendering import format_operation_title
from payintent.core.errors import NotFoundError
from payintent.db.database import get_current_time
from payintent.fraud.operations import AddFraudRule, ListFraudRules
from payintent.gateway_accounts.operations import AddAccount, ListAccounts
from payintent.merchants import operations as merchant_operations
from payintent.merchants.access_operations import (
    IssueApiKey,
    ListApiKeys,
    ListRateLimits,
    RevokeApiKey,
    SetRateLimit,
)
from payintent.merchants.activation import (
    ResumeMerchant,
    ShowActivation,
    ShowChecklist,
    SuspendMerchant,
)
from payintent.merchants.callback_secrets import ListCallbackSecrets, RotateCallbackSecret
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.merchants.model import ActivationStatus, Merchant, accepts_payments
from payintent.merchants.restrictions import ListRestrictions
from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation
from payintent.payment_links.operations import DeactivatePaymentLink, ListPaymentLinks

_DIGITS_MAX = 18
_KEYS_MAX = 100
_LINKS_MAX = 20


async def get_merchants(visit: OperatorVisit) -> Response:
    merchants = await visit.read(
        read_query(visit, merchant_operations.ListMerchants, limit=PAGE_ROWS)
    )
    last_id = merchants[-1].id if len(merchants) == PAGE_ROWS else None
    return visit.render(
        "merchants.html",
        form_values=visit.query,
        merchants=merchants,
        activations=[status.value for status in ActivationStatus],
        create=get_operation_url(visit, merchant_operations.CreateMerchant),
        next_link=last_id and change_query(visit, after=last_id),
    )


async def get_merchant(visit: OperatorVisit) -> Response:
    merchant_id = _parse_merchant_id(visit.request.path_params["merchant_id"])
    merchant = await visit.read(merchant_operations.ShowMerchant(merchant_id=merchant_id))
    settings = await _read_settings(visit, merchant_id)
    return visit.render(
        "merchant.html",
        merchant=merchant,
        actions=_list_actions(visit, merchant),
        add=_list_form_urls(visit, merchant_id),
        now=await get_current_time(visit.context.read_database),
        **settings,
    )


async def _read_settings(visit: OperatorVisit, merchant_id: int) -> dict[str, Any]:
    steps = await visit.read(ShowChecklist(merchant_id=merchant_id))
    accounts = await visit.read(ListAccounts())
    rules = await visit.read(ListFraudRules())
    methods = await visit.read(ListPaymentMethods(merchant_id=merchant_id))
    keys = await visit.read(ListApiKeys(merchant_id=merchant_id, limit=_KEYS_MAX))
    links = await visit.read(ListPaymentLinks(merchant_id=merchant_id, limit=_LINKS_MAX))
    method_accounts = {method.account_id for method in methods}
    return {
        "steps": [(step, _get_step_url(visit, step.action, merchant_id)) for step in steps],
        "activation": await visit.read(ShowActivation(merchant_id=merchant_id)),
        "methods": methods,
        "accounts": [
            account
            for account in accounts
            if account.merchant_id == merchant_id or account.id in method_accounts
        ],
        "limits": await visit.read(ListRateLimits(merchant_id=merchant_id)),
        "rules": [rule for rule in rules if rule.merchant_id in (None, merchant_id)],
        "restrictions": await visit.read(ListRestrictions()),
        "keys": [
            (key, get_operation_url(visit, RevokeApiKey, public_id=key.public_id)) for key in keys
        ],
        "links": [
            (link, get_operation_url(visit, DeactivatePaymentLink, link_id=link.id))
            for link in links
        ],
        "links_max": _LINKS_MAX,
        "secrets": await visit.read(ListCallbackSecrets(merchant_id=merchant_id)),
    }


def _get_step_url(visit: OperatorVisit, action: str, merchant_id: int) -> str | None:
    """Return the URL for a checklist step. A step without a form links to the payment list."""
    kind = OPERATIONS[action]
    if not issubclass(kind, ChangeOperation):
        return f"/payments?merchant_id={merchant_id}"
    return get_operation_url(visit, kind, merchant_id=merchant_id)


def _list_actions(visit: OperatorVisit, merchant: Merchant) -> list[dict[str, str]]:
    operations: list[type[ChangeOperation[Any]]] = [
        merchant_operations.SetMerchantProfile,
        merchant_operations.SetCallbackUrl,
        merchant_operations.SetRefundThreshold,
        merchant_operations.SetDepositTolerance,
    ]
    if accepts_payments(merchant.activation):
        operations.append(SuspendMerchant)
    if merchant.activation is ActivationStatus.SUSPENDED:
        operations.append(ResumeMerchant)
    return make_page_actions(
        (
            format_operation_title(operation.action),
            get_operation_url(visit, operation, merchant_id=merchant.id),
        )
        for operation in operations
    )


def _list_form_urls(visit: OperatorVisit, merchant_id: int) -> dict[str, str | None]:
    """Return links to the forms that add settings; None for forms that the role forbids."""
    operations: dict[str, type[ChangeOperation[Any]]] = {
        "method": AddPaymentMethod,
        "account": AddAccount,
        "limit": SetRateLimit,
        "rule": AddFraudRule,
        "key": IssueApiKey,
        "secret": RotateCallbackSecret,
    }
    return {
        name: get_operation_url(visit, operation, merchant_id=merchant_id)
        for name, operation in operations.items()
    }


def _parse_merchant_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise NotFoundError("no such merchant")
    return int(text)
