"""Separate payouts from the payments and refunds of a file, check them and record them."""

from collections.abc import Collection, Iterator, Sequence

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.settlement_file import PayoutLine, ProviderFileLine
from payintent.reconciliation.listed_payouts import (
    PAYOUTS_MAX,
    PayoutAccount,
    SettledPayouts,
    settle_payouts,
    sum_payouts,
)
from payintent.reconciliation.provider_file import InvalidProviderFileError
from payintent.storage import gateway_payouts
from payintent.storage.database import Tx
from payintent.storage.reconciliation_sums import ReconciliationSum

_PROBLEMS_MAX = 20


def separate_payouts(
    lines: Iterator[ProviderFileLine | PayoutLine], payouts: dict[str, PayoutLine]
) -> Iterator[ProviderFileLine]:
    """Yield the lines of payments and refunds, and add payouts to `payouts` by reference.

    Raises `InvalidProviderFileError` for a duplicate payout or too many payouts.
    """
    for line in lines:
        if isinstance(line, ProviderFileLine):
            yield line
            continue
        first = payouts.setdefault(line.payout.reference, line)
        if first is not line:
            raise InvalidProviderFileError(
                [f"line {line.number}: duplicate of line {first.number}"]
            )
        if len(payouts) > PAYOUTS_MAX:
            raise InvalidProviderFileError(
                [f"line {line.number}: a file has at most {PAYOUTS_MAX} payouts"]
            )


def check_payouts(
    provider: str,
    currencies: Collection[str] | None,
    accounts: Sequence[int],
    lines: Sequence[PayoutLine],
) -> None:
    """Refuse payouts of an ambiguous account or in a currency that the gateway does not support."""
    if lines and len(accounts) > 1:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"the file has payouts, and {provider} has several accounts: name one with --account",
        )
    invalid = [
        line for line in lines if currencies is not None and line.payout.currency not in currencies
    ]
    if invalid:
        raise InvalidProviderFileError(
            [
                f"line {line.number}: {provider} does not support {line.payout.currency}"
                for line in invalid[:_PROBLEMS_MAX]
            ]
        )


async def settle_lines(
    tx: Tx,
    provider: str,
    account_id: int,
    lines: Sequence[PayoutLine],
    recorded_by: str | None,
) -> tuple[SettledPayouts, list[ReconciliationSum]]:
    """Record payouts, or without `recorded_by` only compare them, and sum each side."""
    if not lines:
        return SettledPayouts(), []
    paying = await gateway_payouts.find_paying_account(tx, account_id)
    account = PayoutAccount(
        id=account_id,
        provider=provider,
        merchant_id=None if paying is None else paying.merchant_id,
    )
    payouts = [line.payout for line in lines]
    settled = await settle_payouts(tx, account, payouts, recorded_by)
    return settled, await sum_payouts(tx, account_id, payouts)
