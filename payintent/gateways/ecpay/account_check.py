"""The check of an account at ECPay: it queries a trade that does not exist."""

import re

from payintent.domain.gateway import AccountCheck, AccountProblem, GatewayAccount
from payintent.gateways.account_check import (
    common_problem,
    local_time,
    not_understood,
    refused,
    works,
)
from payintent.gateways.ecpay.api import NOT_FOUND, EcpayApi
from payintent.gateways.ecpay.check_mac import CHECK, parse_form, verify_form
from payintent.gateways.http_client import HttpAnswer

#: No session has this number: those are drawn at random.
CHECK_TRADE_NO = "0AccountCheck0000000"
_PLAIN = re.compile(rb"([0-9]{8})\|")  # a refusal that is no form
_CLOCK_CODES = frozenset({"10200089"})
_OK = 200


async def check_ecpay_account(ecpay: EcpayApi, account: GatewayAccount) -> AccountCheck:
    answer = await ecpay.query(account, CHECK_TRADE_NO)
    if problem := common_problem(account, answer, ecpay.now()):
        return problem
    assert isinstance(answer, HttpAnswer)  # noqa: S101 - anything else is a problem
    if answer.status != _OK:
        return not_understood(account, answer)
    try:
        fields = verify_form(account, answer.body)
    except ValueError:
        return _unsigned(account, answer, ecpay.now())
    if fields.get("TradeStatus") == NOT_FOUND:
        return works("ECPay accepts merchant_id, hash_key and hash_iv")
    return _by_code(account, answer, fields.get("TradeStatus", ""), ecpay.now())


def _unsigned(account: GatewayAccount, answer: HttpAnswer, now: float) -> AccountCheck:
    """Judge an answer that our secrets have not signed: a refusal, or one with other secrets."""
    if plain := _PLAIN.match(answer.body):
        return _by_code(account, answer, plain[1].decode(), now)
    try:
        fields = parse_form(answer.body)
    except ValueError:
        return not_understood(account, answer)
    if CHECK in fields:
        return refused("ECPay signs with another hash_key or hash_iv than this account's")
    return _by_code(account, answer, fields.get("TradeStatus", ""), now)


def _by_code(account: GatewayAccount, answer: HttpAnswer, code: str, now: float) -> AccountCheck:
    if code in _CLOCK_CODES:
        detail = f"ECPay refuses the time of the request; this host says {local_time(now)}"
        return AccountCheck(problem=AccountProblem.CLOCK, detail=detail)
    if re.fullmatch(r"[0-9]{8}", code):
        return refused(f"ECPay refuses merchant_id, hash_key or hash_iv: code {code}")
    return not_understood(account, answer)
