"""ECPay's settlement file for card payments (FundingReconDetail)."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

from payintent.core.errors import quote_input
from payintent.gateways.ecpay.api import CURRENCY, TAIPEI
from payintent.gateways.settlement_reports import FileLayout, ProviderFileLine

#: The published columns: serial number, authorization number, authorization code, order,
#: transaction date, request date, amount, service fee, payout amount.
COLUMNS = (
    *("序號", "授權單號", "授權碼", "訂單編號", "交易日期", "請款日期", "交易金額", "服務費"),
    "撥款金額",
)
_ORDER, _PAID_AT, _REQUESTED_AT, _AMOUNT = 3, 4, 5, 6
_ORDER_NUMBER = re.compile(r"[0-9A-Za-z]{1,20}")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
_TIME_FORMATS = ("%Y/%m/%d %H:%M:%S", "%Y%m%d", "%Y/%m/%d")


def _matches_header(header: Sequence[str]) -> bool:
    """Compare column names by prefix, because some are followed by a unit in brackets."""
    names = [cell.strip() for cell in header]
    return len(names) >= len(COLUMNS) and all(
        name.startswith(column) for name, column in zip(names, COLUMNS, strict=False)
    )


def _parse_row(number: int, row: Sequence[str]) -> ProviderFileLine | None:
    cells = [cell.strip().strip("'=\"") for cell in row]
    if len(cells) < len(COLUMNS) or not (cells[_ORDER] or cells[_PAID_AT]):
        return None  # a total or a note at the end of the file
    order, amount = cells[_ORDER], cells[_AMOUNT].replace(",", "")
    if not _ORDER_NUMBER.fullmatch(order):
        raise ValueError(f"the order number is invalid: {quote_input(order)}")
    if not _WHOLE_NUMBER.fullmatch(amount) or int(amount) == 0:
        raise ValueError(f"the amount must be in whole dollars, not {quote_input(amount)}")
    is_refund = int(amount) < 0
    return ProviderFileLine(
        number=number,
        type="refund" if is_refund else "payment",
        reference=order,
        our_id=None,
        amount=Decimal(abs(int(amount))),
        currency=CURRENCY,
        at=_parse_time(cells[_REQUESTED_AT if is_refund else _PAID_AT]),
    )


def _parse_time(text: str) -> datetime:
    """Parse a date in Taipei time, with or without a time of day."""
    for time_format in _TIME_FORMATS:
        try:
            return datetime.strptime(text, time_format).replace(tzinfo=TAIPEI).astimezone(UTC)
        except ValueError:
            continue
    raise ValueError(f"the date must look like 2026/11/21 09:30:00, not {quote_input(text)}")


#: One layout per encoding, because ECPay does not document the encoding of its files. On Windows,
#: Big5 is code page 950, which has more characters.
LAYOUTS = tuple(
    FileLayout(
        name=f"ecpay-settlement-{encoding}",
        matches=_matches_header,
        read=_parse_row,
        encoding=encoding,
        identifies_orders=True,
    )
    for encoding in ("utf-8-sig", "cp950")
)
