"""Validation of orders: every limit that ECPay documents, with its error codes."""

import re
from datetime import datetime

from payintent_sandbox.emulators.ecpay.model import RefusalError

_PARAMETER, _CHARS, _FIREWALL = "10200001", "10200002", "10400011"
_REQUIRED = (
    "MerchantID",
    "MerchantTradeNo",
    "MerchantTradeDate",
    "PaymentType",
    "TotalAmount",
    "TradeDesc",
    "ItemName",
    "ReturnURL",
    "ChoosePayment",
    "EncryptType",
    "CheckMacValue",
)
#: The maximum length of each field. A field that is not listed is rejected.
_LENGTHS = {
    "MerchantID": 10,
    "MerchantTradeNo": 20,
    "MerchantTradeDate": 20,
    "PaymentType": 20,
    "TotalAmount": 10,
    "TradeDesc": 200,
    "ItemName": 400,
    "ReturnURL": 200,
    "ChoosePayment": 20,
    "EncryptType": 1,
    "CheckMacValue": 64,
    "StoreID": 20,
    "InvoiceMark": 1,
    "DeviceSource": 10,
    "ClientBackURL": 200,
    "ItemURL": 200,
    "Remark": 100,
    "OrderResultURL": 200,
    "NeedExtraPaidInfo": 1,
    "PlatformID": 10,
    "CustomField1": 50,
    "CustomField2": 50,
    "CustomField3": 50,
    "CustomField4": 50,
    "Language": 3,
    "UnionPay": 1,
    "Redeem": 1,
    "BindingCard": 1,
    "MerchantMemberID": 30,
}
_SHAPES = {
    "MerchantTradeNo": r"[0-9A-Za-z]+",
    "PaymentType": r"aio",
    "TotalAmount": r"[1-9][0-9]*",
    "TradeDesc": r"[^<>&#;|`'\"\\]+",
    "ReturnURL": r"https?://[^\s;|`]+",
    "OrderResultURL": r"(https?://[^\s;|`]+)?",
    "ClientBackURL": r"(https?://[^\s;|`]+)?",
    "ChoosePayment": r"Credit",
    "EncryptType": r"1",
    "NeedExtraPaidInfo": r"[YN]?",
    "UnionPay": r"[012]?",
    "Language": r"(ENG|KOR|JPN|CHI)?",
}
#: System commands that ECPay's firewall blocks in texts.
_COMMANDS = (
    r"bash|chmod|cmd|curl|echo|finger|ftp|gcc|kill|ls|mail|nc|net|nmap|passwd|perl|ping|python|rm"
    r"|tclsh|telnet|tftp|traceroute|tracert|uname|wget|wsh|xterm"
)
_DATE = "%Y/%m/%d %H:%M:%S"


def check_order(fields: dict[str, str]) -> None:
    """Reject an order that exceeds a limit. The amount must be in whole dollars."""
    for name in _REQUIRED:
        if not fields.get(name):
            raise RefusalError(_PARAMETER, f"{name} is required.")
    for name, value in fields.items():
        if name not in _LENGTHS:
            raise RefusalError(_PARAMETER, f"{name} is not a known parameter.")
        if len(value) > _LENGTHS[name]:
            raise RefusalError(_CHARS, f"{name} is longer than {_LENGTHS[name]} characters.")
        if name in _SHAPES and not re.fullmatch(_SHAPES[name], value):
            raise RefusalError(_PARAMETER, f"{name} Error.")
    if fields["ReturnURL"] == fields.get("OrderResultURL"):
        raise RefusalError(_PARAMETER, "ReturnURL and OrderResultURL must differ.")
    for name in ("TradeDesc", "ItemName"):
        if re.search(rf"\b({_COMMANDS})\b", fields[name], re.ASCII | re.IGNORECASE):
            raise RefusalError(_FIREWALL, f"{name} contains a system command.")
    _check_date(fields["MerchantTradeDate"])


def _check_date(text: str) -> None:
    try:
        valid = datetime.strptime(text, _DATE).strftime(_DATE) == text  # noqa: DTZ007 - Taipei time
    except ValueError:
        valid = False
    if not valid:
        raise RefusalError(_PARAMETER, "MerchantTradeDate Error.")
