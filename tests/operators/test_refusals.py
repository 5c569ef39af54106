"""The errors of each operation, their messages, and the absence of side effects."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.operations import OPERATIONS
from tests.support.operation_examples import ADA, EXAMPLES, Stage, perform_approved

_BAD, _UNKNOWN, _CONFLICT = ErrorCode.BAD_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT
_REFUSED, _MALFORMED = ErrorCode.UNPROCESSABLE, ErrorCode.INVALID_AMOUNT
_NO_IDS = (0, -1, 99, 2**63 - 1, 2**63, 2**64)
_MERCHANT = [action for action, fields in EXAMPLES.items() if fields.get("merchant_id", "")]
_BY_ID = {
    "account_id": (
        "account.show",
        "account.check",
        "account.change",
        "account.enable",
        "account.disable",
        "chain.retire-contract",
    ),
    "method_id": ("method.change", "method.enable", "method.disable"),
    "rule_id": ("fraud.remove",),
}
_MIXED = "0xFb6916095ca1df60bb79ce92ce3ea74c37c5d359"  # mixed case with a wrong checksum
_ZERO = f"0x{40 * '0'}"
_LISTS = [name for name, kind in OPERATIONS.items() if "limit" in kind.__struct_fields__]

#: Changes to the example of each operation, with the expected error code and message.
REFUSED: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("merchant.create", {"name": ""}, _BAD, "name must have 1 to 200 printable characters"),
    ("merchant.create", {"name": "x" * 201}, _BAD, "name must have 1 to 200"),
    ("merchant.create", {"name": "tab\t"}, _BAD, "name must have 1 to 200"),
    ("merchant.create", {"callback_url": "http://10.0.0.1/"}, _BAD, "callback_url must be https"),
    ("merchant.create", {"callback_url": "ftp://x.example/"}, _BAD, "scheme must be http"),
    ("merchant.profile", {"name": ""}, _BAD, "name must have 1 to 200"),
    ("merchant.profile", {"logo_url": "http://x.example/"}, _BAD, "logo_url must be an https URL"),
    ("merchant.profile", {"accent_colour": "blue"}, _BAD, "is not a colour; use #rrggbb"),
    ("merchant.profile", {"accent_colour": "#0b5bd3;"}, _BAD, "is not a colour; use"),
    ("merchant.profile", {"accent_colour": "#0b5bd3\n"}, _BAD, "is not a colour; use"),
    ("merchant.profile", {"accent_colour": "0b5bd3"}, _BAD, "is not a colour; use"),
    ("merchant.profile", {"terms_url": "javascript:x"}, _BAD, "terms_url must be an https URL"),
    ("merchant.profile", {"support_url": "javascript:x"}, _BAD, "support_url must be an https URL"),
    ("merchant.profile", {"return_url": "https://a@x.example"}, _BAD, "return_url must be an"),
    ("merchant.profile", {"return_url": "https://x.example:y"}, _BAD, "return_url must be an"),
    ("merchant.profile", {"return_url": "http://x.example"}, _BAD, "return_url must be an https"),
    ("merchant.profile", {"return_url": "http://localhost.x.example"}, _BAD, "return_url must be"),
    ("merchant.profile", {"allowed_origins": ["https://x/"]}, _BAD, "is not an origin; use"),
    ("merchant.profile", {"allowed_origins": ["http://x.example"]}, _BAD, "is not an origin; use"),
    ("merchant.profile", {"allowed_origins": ["https://x"] * 21}, _BAD, "at most 20 origins"),
    ("merchant.profile", {"default_country": "US\n"}, _BAD, "country 'US\\\\n' is not supported"),
    ("merchant.profile", {"default_country": ""}, _BAD, "country '' is not supported"),
    ("merchant.profile", {"locale": "j"}, _BAD, "locale 'j' is not a language tag"),
    ("merchant.set-callback-url", {"callback_url": ""}, _BAD, "callback_url is not allowed"),
    ("merchant.rotate-secret", {"overlap_s": -1}, _BAD, "overlap_s must be from 0 to 604800"),
    ("merchant.rotate-secret", {"overlap_s": 604801}, _BAD, "overlap_s must be from 0"),
    ("merchant.request", {"countries": []}, _BAD, "countries must not be empty"),
    ("merchant.request", {"countries": ["TH", "XX"]}, _BAD, "unsupported countries: 'XX'"),
    ("merchant.request", {"currencies": ["EUR", "BTC"]}, _BAD, "currencies: 'BTC, EUR'"),
    ("merchant.request", {"contract": ""}, _BAD, "contract must have 1 to 500"),
    ("merchant.request", {"kyc": "x" * 501}, _BAD, "kyc must have 1 to 500"),
    ("merchant.apply", {}, _CONFLICT, "cannot apply a merchant that is NEW"),
    ("merchant.validate", {}, _CONFLICT, "cannot validate a merchant that is NEW"),
    ("merchant.activate", {}, _CONFLICT, "cannot activate a merchant that is NEW"),
    ("merchant.suspend", {}, _CONFLICT, "cannot suspend a merchant that is NEW"),
    ("merchant.resume", {}, _CONFLICT, "cannot resume a merchant that is NEW"),
    ("key.issue", {"name": "x" * 101}, _BAD, "name must have 1 to 100"),
    ("key.revoke", {"public_id": "AAAAAAAA"}, _UNKNOWN, "no key 'AAAAAAAA'"),
    ("payment-link.list", {"before": "plink_x"}, _BAD, "is not an id of the form plink_"),
    ("payment-link.deactivate", {"link_id": "plink_x"}, _UNKNOWN, "no payment link 'plink_x'"),
    ("operator.issue", {"name": ""}, _BAD, "name must have 1 to 100"),
    ("operator.issue", {"name": "cli:root"}, _BAD, "name must not start with cli:"),
    ("operator.issue", {"name": "merchant:1"}, _BAD, "name must not start with merchant:"),
    ("operator.issue", {"name": "policy:x"}, _BAD, "name must not start with policy:"),
    ("operator.issue", {"name": "CLI:root"}, _BAD, "name must not start with cli:"),
    ("operator.issue", {"name": " Grace"}, _BAD, "without leading or trailing spaces"),
    ("operator.issue", {"name": "\uff27race"}, _BAD, "name must be NFKC-normalized"),
    ("operator.issue", {"name": "aDA"}, _CONFLICT, "'aDA' is or was the name of an operator"),
    ("operator.issue", {"days": 0}, _BAD, "days must be from 1 to 365"),
    ("operator.extend", {"days": 366}, _BAD, "days must be from 1 to 365"),
    *(
        (f"operator.{verb}", {"public_id": "AAAAAAAA"}, _UNKNOWN, "no operator token 'AAAAAAAA'")
        for verb in ("set-role", "extend")
    ),
    *(
        (f"approval.{verb}", {"approval_id": item}, _UNKNOWN, f"no (approval|refund) '{item}'")
        for verb in ("show", "approve", "reject")
        for item in ("x", f"appr_{22 * '0'}", "ref_x")
    ),
    ("approval.approve", {"note": "x" * 501}, _BAD, "note must have 1 to 500 characters"),
    ("approval.reject", {"note": " "}, _BAD, "note must have 1 to 500 characters"),
    ("merchant.profile", {"mail_receipts": True}, _BAD, "requires a mail server: set PAYINTENT"),
    ("operator.identities", {"limit": 0}, _BAD, "limit must be from 1 to"),
    ("operator.issue", {"name": "Oidc:x"}, _BAD, "name must not start with oidc:"),
    *(
        (f"operator.{verb}", {"name": "oidc:x"}, _UNKNOWN, "no operator has signed in as 'oidc:x'")
        for verb in ("block", "unblock")
    ),
    ("operator.revoke", {"public_id": "AAAAAAAA"}, _UNKNOWN, "no operator token 'AAAAAAAA'"),
    ("account.add", {"provider": "stripe"}, _BAD, "provider must be one of fake"),
    ("account.add", {"name": "\x00"}, _BAD, "name must have 1 to 100"),
    ("account.add", {"base_url": "http://x.example"}, _BAD, "base_url must be an https URL"),
    ("account.add", {"credentials": {}}, _BAD, "credentials must have 1 to 20"),
    ("account.add", {"credentials": dict.fromkeys(map(str, range(21)), "x")}, _BAD, "1 to 20"),
    ("account.add", {"credentials": {"key": ""}}, _BAD, "a credential is empty or too long"),
    ("account.add", {"credentials": {"key": "x" * 20_001}}, _BAD, "empty or too long"),
    *(
        (f"account.{verb}", {"credentials": {"api_key": key}}, _BAD, "starts or ends with")
        for verb in ("add", "change")
        for key in ("secret ", "\tsecret", "secret\r\n", " ")
    ),
    ("account.add", {"base_url": "https://evil.example"}, _BAD, "is not an origin of fake; add"),
    ("account.add", {"base_url": "https://gateway.example.com:8443"}, _BAD, "is not an origin"),
    ("account.add", {"base_url": "https://gateway.example.com.evil.example"}, _BAD, "is not an"),
    (
        "account.add",
        {"credentials": {"signing_secret": "b", "script_url": "https://evil.example/x.js"}},
        *(_BAD, "script_url: 'https://evil.example' is not an origin of fake"),
    ),
    ("account.change", {"credentials": None}, _BAD, "a new base_url requires credentials"),
    ("account.change", {"base_url": "https://evil.example"}, _BAD, "is not an origin of fake"),
    (
        "account.change",
        {"base_url": None, "credentials": {"signing_secret": "b", "page_url": "https://evil.example"}},
        *(_BAD, "page_url: 'https://evil.example' is not an origin of fake"),
    ),
    ("account.add", {"countries": []}, _BAD, "countries must not be empty"),
    ("account.add", {"countries": ["XX"]}, _BAD, "unsupported countries: 'XX'"),
    ("account.change", {"countries": ["th"]}, _BAD, "unsupported countries: 'th'"),
    ("account.change", {"name": "x" * 101}, _BAD, "name must have 1 to 100"),
    ("account.change", {"base_url": "x"}, _BAD, "base_url must be an https URL"),
    ("account.change", {"credentials": {}}, _BAD, "credentials must have 1 to 20"),
    ("method.add", {"label": ""}, _BAD, "label must have 1 to 100"),
    ("method.add", {"currencies": []}, _BAD, "currencies must not be empty"),
    ("method.add", {"countries": []}, _BAD, "countries must not be empty"),
    ("method.add", {"fee_rate": "NaN"}, _BAD, "fee_rate must be between 0 and 1"),
    ("method.add", {"fee_rate": "1.01"}, _BAD, "fee_rate must be between 0 and 1"),
    ("method.add", {"fee_rate": "0.000000001"}, _BAD, "fee_rate must have at most 8 decimals"),
    ("method.add", {"position": -1}, _BAD, "position must be from 0 to 10000"),
    *(
        ("method.add", {"account_id": no_id}, _UNKNOWN, f"has no account {no_id}$")
        for no_id in _NO_IDS
    ),
    ("method.change", {"label": "x" * 101}, _BAD, "label must have 1 to 100"),
    ("method.change", {"currencies": []}, _BAD, "currencies must not be empty"),
    ("method.change", {"countries": ["GL!"]}, _BAD, "unsupported countries: 'GL!'"),
    ("method.change", {"fee_rate": "-0.1"}, _BAD, "fee_rate must be between 0 and 1"),
    ("method.change", {"position": 10_001}, _BAD, "position must be from 0 to 10000"),
    *(
        (f"provider.{verb}", {"provider": "nobody"}, _UNKNOWN, "no provider 'nobody'")
        for verb in ("enable", "disable", "rename")
    ),
    ("provider.rename", {"wire_name": "Stripe"}, _BAD, "wire_name must be 1 to 32 lowercase"),
    ("tax.set", {"country": "XX"}, _BAD, "country 'XX' is not supported"),
    ("tax.set", {"rate": "Infinity"}, _BAD, "rate must be between 0 and 1"),
    ("tax.remove", {}, _UNKNOWN, "no tax rate for 'TH'"),
    ("restriction.add", {"country": "cu"}, _BAD, "country 'cu' must be two capital letters"),
    ("restriction.lift", {}, _UNKNOWN, "'CU' has no CRYPTO restriction"),
    ("fraud.add", {"code": "spam"}, _BAD, "code must be 1 to 64 capital letters"),
    ("fraud.add", {"code": "1A"}, _BAD, "starting with a letter"),
    ("fraud.add", {"score": 101}, _BAD, "score must be from 0 to 100"),
    ("fraud.add", {"value": None}, _BAD, "value must have 1 to 255 characters"),
    ("fraud.add", {"value": "x" * 256}, _BAD, "value must have 1 to 255 characters"),
    ("fraud.add", {"value": "nobody"}, _BAD, "value must be an email address"),
    ("fraud.add", {"count_max": 1}, _BAD, "only velocity rules can have count_max"),
    ("fraud.add", {"kind": "PAYER", "value": "\x00"}, _BAD, "value contains characters"),
    ("fraud.add", {"kind": "COUNTRY", "value": "Japan"}, _BAD, "must be two capital letters"),
    ("fraud.add", {"kind": "ADDRESS", "value": "10.0.0.1/8"}, _BAD, "not an address or network"),
    ("fraud.add", {"kind": "PAYER_VELOCITY"}, _BAD, "a velocity rule requires count_max and"),
    *(
        (
            "fraud.add",
            {"kind": "ADDRESS_VELOCITY", "value": None, "count_max": count, "window_s": window},
            _BAD,
            "count_max must be from 1 to 1000000, and window_s must be from 1 to 2592000",
        )
        for count, window in ((0, 1), (1_000_001, 1), (1, 0), (1, 2_592_001))
    ),
    ("limit.set", {"per_s": 0}, _BAD, "per_s must be from 1 to 1000000"),
    ("limit.set", {"burst": 0}, _BAD, "burst must be from 1 to 10000000"),
    ("limit.clear", {}, _UNKNOWN, "merchant 2 has no create limit"),
    ("chain.set", {"chain": "tron"}, _UNKNOWN, "no chain 'tron'"),
    ("chain.set", {"confirmations": 0}, _BAD, "confirmations must be from 1 to 10000"),
    ("chain.set", {"confirmations": 10_001}, _BAD, "confirmations must be from 1 to 10000"),
    ("chain.set", {"confirmations": None}, _BAD, "finality `confirmations` requires"),
    ("chain.set", {"public_rpc_urls": ["http://x.example"]}, _BAD, "public_rpc_urls must be an"),
    ("chain.set", {"explorer_urls": ["https://x.example"] * 11}, _BAD, "must have at most 10 URLs"),
    ("chain.set", {"auto_refund_gas": -1}, _BAD, "auto_refund_gas must be from 0"),
    ("chain.set", {"sweeper": f"0x{40 * '0'}"}, _BAD, "sweeper must not be the zero address"),
    ("chain.set", {"sweep_count": 0}, _BAD, "sweep_count must be from 1"),
    ("chain.set", {"sweep_after_s": -1}, _BAD, "sweep_after_s must be from 0"),
    ("chain.set", {"sweep_gas_price_max": "-1"}, _BAD, "must be a number of gwei"),
    ("chain.set", {"transfer_fee_usd": "1e3"}, _BAD, "must be a number of US dollars"),
    ("chain.set-token", {"sweep_value": "-1"}, _BAD, "sweep_value must be a number"),
    ("chain.set-token", {"sweep_minimum": "1e3"}, _BAD, "sweep_minimum must be a number"),
    ("chain.set", {"auto_refund_gas": 10**12 + 1}, _BAD, "auto_refund_gas must be from 0"),
    ("chain.set-token", {"surplus_from": "-1"}, _BAD, "surplus_from must be a number"),
    *(
        ("merchant.set-deposit-tolerance", {"percent": percent}, _BAD, "must be from 0 to 1")
        for percent in ("-0.001", "1.001", "0.0001", "NaN", "Infinity")
    ),
    ("chain.set-token", {"auto_refund_from": "-1"}, _BAD, "auto_refund_from must be a number"),
    ("chain.set-token", {"auto_refund_from": "1e3"}, _BAD, "auto_refund_from must be a number"),
    ("chain.set-token", {"chain": "tron"}, _UNKNOWN, "no chain 'tron'"),
    ("chain.sweep-now", {"chain": "tron"}, _UNKNOWN, "no chain 'tron'"),
    ("chain.set-token", {"symbol": "DAI"}, _UNKNOWN, "no token 'DAI' on native; use one"),
    ("chain.set-token", {"address": "0x12"}, _BAD, "address: an address must be 0x followed by 40"),
    ("chain.set-token", {"address": _MIXED}, _BAD, "address: the address has an invalid checksum"),
    ("chain.set-token", {"address": _ZERO}, _BAD, "only the chain's native coin"),
    ("chain.set-token", {"symbol": "NATIVED"}, _BAD, "only the chain's native coin"),
    ("chain.set-token", {"decimals": 19}, _BAD, "decimals must be from 0 to 18"),
    ("chain.set-token", {"minimum": 0}, _BAD, "minimum must be greater than zero"),
    ("chain.add-contract", {"chain": ""}, _UNKNOWN, "no chain ''"),
    ("chain.add-contract", {"address": "x"}, _BAD, "address: an address must be 0x"),
    ("chain.add-contract", {"receiver": _MIXED}, _BAD, "receiver: the address has an invalid"),
    ("chain.add-contract", {"deployed_block": -1}, _BAD, "deployed_block must be a block"),
    ("chain.add-contract", {"deployed_block": 2**63}, _BAD, "deployed_block must be a block"),
    ("chain.add-contract", {"name": "x" * 101}, _BAD, "name must have 1 to 100"),
    ("chain.add-contract", {"chain": "bsc"}, _CONFLICT, "0xfb.* on bsc is already registered"),
    ("chain.retire-contract", {"account_id": 1}, _UNKNOWN, "no contract uses account 1"),
    ("chain.resume", {"chain": "ethereum"}, _UNKNOWN, "no contract is registered on ethereum"),
    ("chain.resume", {"block": -1}, _BAD, "block must be a block number"),
    *((f"case.{verb}", {"case_id": "x"}, _UNKNOWN, "no case 'x'") for verb in ("show", "resolve")),
    *(
        (f"payment.{verb}", {"payment_id": "pay_0"}, _UNKNOWN, "no payment 'pay_0'")
        for verb in ("show", "cancel", "refund", "end")
    ),
    ("payment.list", {"older_than": "1 hour"}, _BAD, "older_than must be a number followed by"),
    ("payment.list", {"tx_hash": "0x12"}, _BAD, "tx_hash must be 0x followed by 64"),
    ("payment.list", {"before": "pay_0"}, _UNKNOWN, "no payment 'pay_0'"),
    ("payment.list", {"currency": "XXX"}, _BAD, "currency 'XXX' is not supported"),
    ("payment.list", {"amount_min": "1e30"}, _BAD, "amount_min must be a number below"),
    ("payment.timeline", {"page": 0}, _BAD, "page must be from 1 to 10000"),
    ("payment.timeline", {"payment_id": "x"}, _UNKNOWN, "no payment 'x'"),
    ("quotes.explain", {"payment_id": "x"}, _UNKNOWN, "no payment 'x'"),
    ("case.list", {"before": "x"}, _BAD, "before: 'x' is not an id of the form case_…"),
    ("case.list", {"status": "OPEN", "order": "oldest", "after": "x"}, _BAD, "after: .x. is not"),
    ("case.list", {"after": f"case_{22 * '0'}"}, _BAD, "after cannot be combined with the order"),
    ("quotes.explain", {"payment_id": "pay_0"}, _UNKNOWN, "no payment 'pay_0'"),
    ("quotes.explain", {"country": "KR"}, ErrorCode.UNSUPPORTED_COUNTRY, "KR"),
    ("payer.export", {"payer_uid": "nobody"}, _UNKNOWN, "no payer 'nobody'"),
    ("payer.erase", {"payer_uid": "nobody"}, _UNKNOWN, "no payer 'nobody'"),
    ("payer.erase", {"payer_uid": "(erased)"}, _UNKNOWN, "no payer '.erased.'"),
    ("payer.erase", {"payer_uid": "buyer-1"}, ErrorCode.CONFLICT, "its payer cannot be erased yet"),
    ("payer.export", {"after": "pay_0"}, _BAD, "after must be a payment id, not 'pay_0'"),
    ("ledger.adjust", {"debit": "purse:1"}, _BAD, "'purse:1' is not a ledger account"),
    ("ledger.adjust", {"debit": "suspense"}, _BAD, "'suspense' is not a ledger account"),
    ("ledger.adjust", {"debit": "bank:1"}, _BAD, "'bank:1' is not a ledger account"),
    ("ledger.adjust", {"debit": "suspense:999"}, _UNKNOWN, "account 'suspense:999' does not exist"),
    ("ledger.adjust", {"credit": "merchant_payable:999"}, _UNKNOWN, "'merchant_payable:999'"),
    ("ledger.adjust", {"credit": "bank"}, _BAD, "debit and credit must be different accounts"),
    ("ledger.adjust", {"amount_minor": "0"}, _BAD, "amount is not valid: '0'"),
    ("ledger.adjust", {"amount_minor": "-1"}, _BAD, "amount is not valid: '-1'"),
    ("ledger.adjust", {"amount_minor": "1.5"}, _BAD, "amount is not valid: '1.5'"),
    ("ledger.adjust", {"currency": "baht"}, _BAD, "currency is not valid: 'baht'"),
    ("ledger.adjust", {"chain": "A B"}, _BAD, "chain is not valid: 'A B'"),
    ("ledger.adjust", {"note": " "}, _BAD, "note must have 1 to 500 characters"),
    ("payout.record", {"amount": "0"}, _BAD, "amount must be greater than zero"),
    ("payout.record", {"currency": "XXX"}, _BAD, "'XXX' is unknown"),
    ("payout.record", {"reference": "transfer 1"}, _CONFLICT, "'transfer 1' is already recorded"),
    ("payout.record", {"amount": "999999"}, _REFUSED, "merchant 1 is owed .* not 999999.00"),
    ("payout.import", {"lines": []}, _BAD, "lines must begin with merchant,amount"),
    ("payout.import", {"lines": ["merchant"]}, _BAD, "lines must begin with merchant,amount"),
    ("payout.import", {"lines": ["x"] * 1002}, _BAD, "lines must have at most 1000 payouts"),
    ("payout.reverse", {"note": " "}, _BAD, "note must have 1 to 500 characters"),
    ("payout.reverse", {"payout_id": str(UUID(int=0))}, _UNKNOWN, "no payout"),
    ("reconciliation.list", {"status": "odd"}, _BAD, "status must be one of running, matched"),
    ("reconciliation.list", {"account_id": 0}, _UNKNOWN, "no account 0"),
    ("reconciliation.show", {"run_id": str(UUID(int=0))}, _UNKNOWN, "no run"),
    ("reconciliation.retry", {"run_id": str(UUID(int=0))}, _UNKNOWN, "no run"),
    ("statement.list", {"since": "1.1.26"}, _BAD, "since must be a date such as 2026-01-31"),
    ("statement.list", {"until": "2026-02-30"}, _BAD, "until must be a date such as 2026-01-31"),
    ("statement.list", {"before": "x"}, _BAD, "before: 'x' is not an id"),
    ("statement.show", {"statement_id": "x"}, _UNKNOWN, "no statement 'x'"),
    ("statement.export", {"statement_id": f"stmt_{22 * '0'}"}, _UNKNOWN, "no statement 'stmt_0"),
    ("merchant.profile", {"time_zone": "Mars/Olympus"}, _BAD, "time_zone 'Mars/Olympus' is not"),
    ("merchant.profile", {"time_zone": ""}, _BAD, "time_zone '' is not a time zone"),
    ("ledger.adjust", {"debit": "merchant_payable:1", "credit": "merchant_payable:2"}, _BAD,
        "cannot move money between merchants"),
    ("gateway-payout.record", {"account_id": 0}, _UNKNOWN, "no account 0"),
    ("gateway-payout.record", {"amount": "1e3"}, _BAD, "amount must be a plain decimal, not '1e3'"),
    ("gateway-payout.record", {"amount": "-0.00"}, _BAD, "amount must not be zero and must"),
    ("gateway-payout.record", {"fee": "0.001"}, _BAD, "fee must not be zero and must"),
    ("gateway-payout.record", {"currency": "XXX"}, _BAD, "'XXX' is unknown"),
    ("gateway-payout.record", {"reference": ""}, _BAD, "reference must have 1 to 200"),
    ("gateway-payout.record", {"paid_on": "1.2.26"}, _BAD, "paid_on must be a date"),
    ("gateway-payout.record", {"reference": "po_1"}, _CONFLICT, "'po_1' is already recorded with"),
    ("gateway-payout.reverse", {"note": " "}, _BAD, "note must have 1 to 500 characters"),
    ("gateway-payout.reverse", {"payout_id": str(UUID(int=0))}, _UNKNOWN, "no gateway payout"),
    ("gateway-payout.list", {"account_id": 999}, _UNKNOWN, "no account 999"),
    ("refund.list", {"before": "pay_x"}, _BAD, "before: 'pay_x' is not an id of the form ref_…"),
    ("merchant.list", {"after": -1}, _BAD, "after must be a merchant ID"),
    ("merchant.list", {"name": ""}, _BAD, "name must have 1 to 200 characters"),
    ("webhooks.endpoints", {"after": -1}, _BAD, "after must be a merchant ID"),
    ("payment.search", {"before": "pay_0"}, _UNKNOWN, "no payment 'pay_0'"),
    ("payment.search", {"text": " "}, _BAD, "text must have 1 to 300 characters"),
    ("payment.search", {"text": "x\x00"}, _BAD, "text contains characters"),
    ("payment.refund", {"reason": ""}, _BAD, "reason must have 1 to 500 characters"),
    ("payment.refund", {"destination": "x" * 101}, _BAD, "destination must have 1 to 100"),
    ("payment.refund", {"amount": "1e2"}, _MALFORMED, "amount must be a plain decimal"),
    ("payment.refund", {"destination": _ZERO}, _REFUSED, "be refunded to its payment"),
    ("case.resolve", {"note": " "}, _BAD, "note must have 1 to 500 characters"),
    ("case.resolve", {"note": "x" * 501}, _BAD, "note must have 1 to 500 characters"),
    ("case.resolve", {"note": "\x00"}, _BAD, "note contains characters"),
    ("case.resolve", {"destination": _ZERO}, _BAD, "`destination` is only allowed"),
    ("case.resolve", {"resolution": "refund"}, _REFUSED, "no captured money is recorded"),
    *(
        (f"refund.{verb}", {"refund_id": "x"}, _UNKNOWN, "no refund 'x'")
        for verb in ("show", "approve", "reject", "resend", "address-link")
    ),
    ("refund.list", {"payment_id": "x"}, _UNKNOWN, "no payment 'x'"),
    ("refund.list", {"payment_id": f"pay_{22 * '0'}"}, _UNKNOWN, "no payment 'pay_"),
    ("refund.approve", {"note": "x" * 501}, _BAD, "note must have 1 to 500 characters"),
    ("refund.reject", {"note": ""}, _BAD, "note must have 1 to 500 characters"),
    ("webhooks.show", {"event_id": "00000000-0000-0000-0000-000000000000"}, _UNKNOWN, "no event"),
    ("webhooks.replay", {"event_id": "00000000-0000-0000-0000-000000000000"}, _UNKNOWN, "no event"),
    ("webhooks.replay-missed", {"merchant_id": None, "since": None}, _BAD, "specify a merchant"),
    ("webhooks.replay-missed", {"since": "0001-01-01T00:00:00+01:00"}, _BAD, "since is out of"),
    ("webhooks.replay-missed", {"until": "9999-12-31T23:00:00-02:00"}, _BAD, "until is out of"),
    *((action, {"limit": 0}, _BAD, "limit must be from 1 to 1000") for action in _LISTS),
    *((action, {"limit": 1001}, _BAD, "limit must be from 1 to 1000") for action in _LISTS),
    *(
        (action, {"merchant_id": no_id}, _UNKNOWN, f"no merchant {no_id}$")
        for action in _MERCHANT
        for no_id in _NO_IDS
    ),
    *(
        (action, {field: no_id}, _UNKNOWN, f" {no_id}$")
        for field, actions in _BY_ID.items()
        for action in actions
        for no_id in _NO_IDS
    ),
]  # fmt: skip


async def test_each_rejection_has_its_error_code_and_message_and_is_not_audited(
    stage: Stage,
) -> None:
    [before] = await stage.world.rows("SELECT count(*) AS n FROM audit")
    for action, changed, code, message in REFUSED:
        operation = msgspec.convert(stage.fields(action) | changed, OPERATIONS[action])
        with pytest.raises(RefusedError, match=message) as refused:
            await stage.perform(operation, ADA)
        assert refused.value.code is code, (action, changed)
        assert len(refused.value.message) < 200, (action, changed)
    assert await stage.world.rows("SELECT count(*) AS n FROM audit") == [before]


def test_every_operation_that_can_be_rejected_has_an_example() -> None:
    without_rejection = {"keyring.show", "keyring.rotate", "provider.list", "tax.list"}
    without_rejection |= {"operator.replace"}  # except from a terminal, which is not an operator
    without_rejection |= {"ledger.check", "ledger.backfill", "retention.show", "refund.ask-first"}
    without_rejection |= {"restriction.list", "fraud.list", "chain.list", "provider.health"}
    assert set(OPERATIONS) - {action for action, *_ in REFUSED} == without_rejection


async def test_a_base_url_with_a_configured_gateway_origin_is_accepted(
    stage: Stage,
) -> None:
    fields = stage.fields("account.add") | {"base_url": "https://eu.gateway.example.com:8443/v1"}
    adding = msgspec.convert(fields, OPERATIONS["account.add"])
    with pytest.raises(
        RefusedError, match="is not an origin of fake; add other origins to PAYINTENT_"
    ):
        await stage.perform(adding, ADA)
    origins = "https://other.example.com, HTTPS://EU.gateway.example.com:8443/"
    changed = stage.service.settings.model_copy(update={"gateway_origins": origins})
    account = await perform_approved(replace(stage.service, settings=changed), adding, ADA)
    assert account.base_url == fields["base_url"]


async def test_error_messages_do_not_repeat_long_values(stage: Stage) -> None:
    long = "X" * 60_000
    for action, changed in (
        ("key.revoke", {"public_id": long}),
        ("operator.revoke", {"public_id": long}),
        ("merchant.profile", {"default_country": long}),
        ("merchant.profile", {"locale": long}),
        ("merchant.profile", {"allowed_origins": [long]}),
        ("merchant.request", {"countries": [long]}),
        ("merchant.request", {"countries": [f"{item}" for item in range(10_000)]}),
        ("provider.enable", {"provider": long}),
        ("tax.set", {"country": long}),
        ("tax.remove", {"country": long}),
        ("restriction.add", {"country": long}),
        ("restriction.lift", {"country": long}),
        ("fraud.add", {"kind": "ADDRESS", "value": long[:255]}),
        ("operator.issue", {"name": long}),
        ("operator.extend", {"public_id": long}),
        ("approval.show", {"approval_id": long}),
        ("account.add", {"provider": long}),
        ("chain.set", {"chain": long}),
        ("chain.set-token", {"symbol": long}),
        ("chain.add-contract", {"address": long}),
        ("case.show", {"case_id": long}),
        ("case.resolve", {"case_id": long}),
        ("refund.list", {"payment_id": long}),
        ("refund.approve", {"refund_id": long}),
    ):
        operation = msgspec.convert(stage.fields(action) | changed, OPERATIONS[action])
        with pytest.raises(RefusedError) as refused:
            await stage.perform(operation, ADA)
        assert len(refused.value.message) < 500, action
