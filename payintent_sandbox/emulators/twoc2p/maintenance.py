"""The maintenance API in XML: refunds, voids and their status."""

import re
import secrets
from decimal import Decimal
from xml.etree import ElementTree as ET

from payintent_sandbox.emulators.twoc2p.machine import TwoC2pEmulator
from payintent_sandbox.emulators.twoc2p.model import Account, Invoice, Refund, stamp, utc_now

_AMOUNT = re.compile(r"[0-9]{1,10}\.[0-9]{2}")
_WORDS = {
    "00": "Success",
    "12": "Transaction status is not valid to perform your action.",
    "14": "Invalid merchant ID.",
    "16": "Requested transaction doesn't exist.",
    "17": "Request type is invalid.",
    "18": "Invalid Action Amount.",
    "21": "Void not allowed.",
    "29": "Transaction is already voided.",
    "40": "Refund amount is more than transaction amount.",
    "42": "Refund pending.",
    "44": "Refund rejected.",
    "49": "Transaction is already fully refunded.",
}
_CODES = {"RF": "00", "RP": "42", "RR": "44"}


def act(emulator: TwoC2pEmulator, account: Account, content: bytes) -> bytes:
    """Run the process that a request names.

    A repeated `idempotencyID` gets the first response again, even for a different process. Raises
    ValueError if the request is not XML.
    """
    try:
        root = ET.fromstring(content)  # noqa: S314 - sent and signed by tests
    except ET.ParseError:
        raise ValueError("the request is not XML") from None
    fields = {child.tag: child.text or "" for child in root}
    key = account.merchant_id, fields.get("idempotencyID", "")
    if key in emulator.first_answers:
        return emulator.first_answers[key]
    answer = _run(emulator, account, fields)
    if key[1]:
        emulator.first_answers[key] = answer
    return answer


def refund_in_portal(invoice: Invoice, amount: str) -> bool:
    """Refund as if in 2C2P's merchant portal; return False if the refund is rejected."""
    return _refund(invoice, {"actionAmount": amount})[1] is not None


def _run(emulator: TwoC2pEmulator, account: Account, fields: dict[str, str]) -> bytes:
    process = fields.get("processType", "")
    invoice = emulator.find(account, fields.get("invoiceNo", ""))
    refund: Refund | None = None
    if fields.get("merchantID") != account.merchant_id:
        code = "14"
    elif invoice is None or not invoice.status:
        code = "16"
    elif process == "R":
        code, refund = _refund(invoice, fields)
    elif process == "V":
        code = _void(invoice)
    else:
        code = "00" if process in {"I", "RS"} else "17"
    return _answer(fields, code, invoice, refund)


def _refund(invoice: Invoice, fields: dict[str, str]) -> tuple[str, Refund | None]:
    if not _AMOUNT.fullmatch(fields.get("actionAmount", "")):
        return "18", None
    amount = Decimal(fields["actionAmount"])
    if invoice.status != "S":
        return "12", None
    if invoice.refunded >= invoice.order.amount:
        return "49", None
    if not 0 < amount <= invoice.order.amount - invoice.refunded:
        return "40", None
    refund = Refund(
        amount=amount,
        status=invoice.refund_status,
        reference=str(secrets.randbelow(10**12)),
        name=fields.get("userDefined1", ""),
        at=utc_now(),
    )
    invoice.refunds.append(refund)
    return _CODES[refund.status], refund


def _void(invoice: Invoice) -> str:
    if invoice.status == "V":
        return "29"
    if invoice.status != "A":
        return "21"
    invoice.status = "V"
    return "00"


def _answer(
    fields: dict[str, str], code: str, invoice: Invoice | None, refund: Refund | None
) -> bytes:
    root = ET.Element("PaymentProcessResponse")
    values = {
        "version": fields.get("version", ""),
        "timeStamp": stamp(None, "%d%m%y%H%M%S"),
        "respCode": code,
        "respDesc": _WORDS[code],
        "processType": fields.get("processType", ""),
        "invoiceNo": fields.get("invoiceNo", ""),
    }
    if invoice is not None:
        values["amount"] = f"{invoice.order.amount:.2f}"
        values["status"] = refund.status if refund else invoice.status
        values["referenceNo"] = invoice.tran_ref
    if refund is not None and refund.status != "RP":
        values["refundReferenceNo"] = refund.reference
    for tag, text in values.items():
        ET.SubElement(root, tag).text = text
    if invoice is not None and fields.get("processType") == "RS":
        listed = ET.SubElement(root, "refundList")
        for listed_refund in invoice.refunds:
            ET.SubElement(listed, "refund", _attributes(listed_refund))
    return ET.tostring(root, encoding="utf-8")


def _attributes(refund: Refund) -> dict[str, str]:
    return {
        "amount": f"{refund.amount:.2f}",
        "status": refund.status,
        "referenceNo": refund.reference,
        "dateTime": stamp(refund.at, "%Y%m%d%H%M%S"),
    }
