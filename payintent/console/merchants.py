"""The pages of merchants: the list, and one with its way into service and all its settings."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import ROWS, link_operation, other_page, read_list, read_query, typed
from payintent.console.page_action import PageAction, offer
from payintent.console.rendering import render
from payintent.console.sessions import OperatorSession
from payintent.domain.activation import ActivationStatus, is_in_service
from payintent.domain.errors import NotFoundError
from payintent.domain.merchant import Merchant
from payintent.operations.accounts import AddAccount, ListAccounts
from payintent.operations.activation import ResumeMerchant, ShowActivation, SuspendMerchant
from payintent.operations.base import ChangeOperation
from payintent.operations.fraud import AddFraudRule, ListFraudRules
from payintent.operations.keys import IssueApiKey, ListApiKeys, RevokeApiKey
from payintent.operations.merchant_list import ListCallbackSecrets, ListMerchants, ShowChecklist
from payintent.operations.merchants import (
    CreateMerchant,
    RotateCallbackSecret,
    SetCallbackUrl,
    SetMerchantProfile,
    ShowMerchant,
)
from payintent.operations.payment_methods import AddPaymentMethod, ListPaymentMethods
from payintent.operations.rate_limits import ListRateLimits, SetRateLimit
from payintent.operations.refund_threshold import SetRefundThreshold
from payintent.operations.registry import OPERATIONS
from payintent.operations.restrictions import ListRestrictions
from payintent.storage.database import current_time

_DIGITS_MAX = 18
_KEYS_SHOWN = 100


async def get_merchants(request: Request) -> Response:
    session = await signed_in(request)
    wanted = read_query(request, ListMerchants, limit=ROWS)
    found = await read_list(request, session, wanted)
    following = found[-1].id if len(found) == ROWS else None
    return render(
        request,
        "merchants.html",
        typed=typed(request),
        merchants=found,
        activations=[status.value for status in ActivationStatus],
        create=link_operation(session, CreateMerchant),
        following=following and other_page(request, after=following),
    )


async def get_merchant(request: Request) -> Response:
    session = await signed_in(request)
    merchant_id = _parse(request.path_params["merchant_id"])
    merchant = await read_list(request, session, ShowMerchant(merchant_id=merchant_id))
    shown = await _read_parts(request, session, merchant_id)
    return render(
        request,
        "merchant.html",
        merchant=merchant,
        actions=_actions(session, merchant),
        add=_links(session, merchant_id),
        now=await current_time(get_console_context(request).reading),
        **shown,
    )


async def _read_parts(
    request: Request, session: OperatorSession, merchant_id: int
) -> dict[str, Any]:
    steps = await read_list(request, session, ShowChecklist(merchant_id=merchant_id))
    accounts = await read_list(request, session, ListAccounts())
    rules = await read_list(request, session, ListFraudRules())
    methods = await read_list(request, session, ListPaymentMethods(merchant_id=merchant_id))
    keys = await read_list(
        request, session, ListApiKeys(merchant_id=merchant_id, limit=_KEYS_SHOWN)
    )
    used = {method.account_id for method in methods}
    return {
        "steps": [(step, _step_link(session, step.action, merchant_id)) for step in steps],
        "file": await read_list(request, session, ShowActivation(merchant_id=merchant_id)),
        "methods": methods,
        "accounts": [
            account
            for account in accounts
            if account.merchant_id == merchant_id or account.id in used
        ],
        "limits": await read_list(request, session, ListRateLimits(merchant_id=merchant_id)),
        "rules": [rule for rule in rules if rule.merchant_id in (None, merchant_id)],
        "restrictions": await read_list(request, session, ListRestrictions()),
        "keys": [
            (key, link_operation(session, RevokeApiKey, public_id=key.public_id)) for key in keys
        ],
        "secrets": await read_list(request, session, ListCallbackSecrets(merchant_id=merchant_id)),
    }


def _step_link(session: OperatorSession, action: str, merchant_id: int) -> str | None:
    """Return where a step is done; to try a payment there is no form."""
    kind = OPERATIONS[action]
    if not issubclass(kind, ChangeOperation):
        return f"/payments?merchant_id={merchant_id}"
    return link_operation(session, kind, merchant_id=merchant_id)


def _actions(session: OperatorSession, merchant: Merchant) -> list[PageAction]:
    ways: list[tuple[str, str | None]] = [
        ("Change profile", link_operation(session, SetMerchantProfile, merchant_id=merchant.id)),
        ("Set callback URL", link_operation(session, SetCallbackUrl, merchant_id=merchant.id)),
        (
            "Set refund threshold",
            link_operation(session, SetRefundThreshold, merchant_id=merchant.id),
        ),
    ]
    if is_in_service(merchant.activation):
        ways.append(("Suspend", link_operation(session, SuspendMerchant, merchant_id=merchant.id)))
    if merchant.activation is ActivationStatus.SUSPENDED:
        ways.append(("Resume", link_operation(session, ResumeMerchant, merchant_id=merchant.id)))
    return offer(ways)


def _links(session: OperatorSession, merchant_id: int) -> dict[str, str | None]:
    """Return the forms that add to a merchant; None if the role does not include one."""
    return {
        "method": link_operation(session, AddPaymentMethod, merchant_id=merchant_id),
        "account": link_operation(session, AddAccount, merchant_id=merchant_id),
        "limit": link_operation(session, SetRateLimit, merchant_id=merchant_id),
        "rule": link_operation(session, AddFraudRule, merchant_id=merchant_id),
        "key": link_operation(session, IssueApiKey, merchant_id=merchant_id),
        "secret": link_operation(session, RotateCallbackSecret, merchant_id=merchant_id),
    }


def _parse(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise NotFoundError("no such merchant")
    return int(text)
