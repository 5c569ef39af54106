"""Check an ECPay account by querying a trade that does not exist."""

import re

from payintent.domain.gateway import AccountCheck, AccountProblem, GatewayAccount
from payintent.gateways.account_check import (
    check_response,
    local_time,
    not_understood,
    refused,
    works,
)
from payintent.gateways.ecpay.api import NOT_FOUND, EcpayApi
from payintent.gateways.ecpay.check_mac import CHECK, parse_form, verify_form
from payintent.gateways.http_client import HttpAnswer

CHECK_TRADE_NO = "0AccountCheck0000000"  # session numbers are random, so none equals this
_PLAIN_REFUSAL = re.compile(rb"([0-9]{8})\|")
_CLOCK_CODES = frozenset({"10200089"})
_OK = 200


async def check_ecpay_account(ecpay: EcpayApi, account: GatewayAccount) -> AccountCheck:
    answer = check_response(account, await ecpay.query(account, CHECK_TRADE_NO), ecpay.now())
    if isinstance(answer, AccountCheck):
        return answer
    if answer.status != _OK:
        return not_understood(account, answer)
    try:
        fields = verify_form(account, answer.body)
    except ValueError:
        return _explain_unsigned(account, answer, ecpay.now())
    if fields.get("TradeStatus") == NOT_FOUND:
        return works("ECPay accepts merchant_id, hash_key and hash_iv")
    return _explain_code(account, answer, fields.get("TradeStatus", ""), ecpay.now())


def _explain_unsigned(account: GatewayAccount, answer: HttpAnswer, now: float) -> AccountCheck:
    """Explain a response without our signature: a refusal, or the secrets differ."""
    if match := _PLAIN_REFUSAL.match(answer.body):
        return _explain_code(account, answer, match[1].decode(), now)
    try:
        fields = parse_form(answer.body)
    except ValueError:
        return not_understood(account, answer)
    if CHECK in fields:
        return refused("ECPay signs with another hash_key or hash_iv than this account's")
    return _explain_code(account, answer, fields.get("TradeStatus", ""), now)


def _explain_code(
    account: GatewayAccount, answer: HttpAnswer, code: str, now: float
) -> AccountCheck:
    if code in _CLOCK_CODES:
        detail = f"ECPay refuses the request time; the time of this host is {local_time(now)}"
        return AccountCheck(problem=AccountProblem.CLOCK, detail=detail)
    if re.fullmatch(r"[0-9]{8}", code):
        return refused(f"ECPay refuses merchant_id, hash_key or hash_iv: code {code}")
    return not_understood(account, answer)
