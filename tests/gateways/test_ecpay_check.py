"""CheckMacValue matches the published values and covers all fields."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.gateways.ecpay.api import FIELDS_MAX, check_mac_value, verify_form
from payintent_sandbox.emulators.ecpay import checkmac
from tests.gateways.ecpay_setup import account_at
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, mac, signed
from tests.sandbox.ecpay.test_orders import PUBLISHED, PUBLISHED_MAC

KEY, IV = ACCOUNT.hash_key, ACCOUNT.hash_iv
HERE = account_at("http://nowhere.test")

#: Published in ECPay's API guide.
VECTORS = {
    "291CBA324D31FB5A4BBBFDF2CFE5D32598524753AFD4959C3BF590C5B2F57FB2": {
        "MerchantID": "3002607",
        "MerchantTradeNo": "Test1234567890",
        "MerchantTradeDate": "2025/01/01 12:00:00",
        "PaymentType": "aio",
        "TotalAmount": "100",
        "TradeDesc": "測試",
        "ItemName": "測試商品",
        "ReturnURL": "https://example.com/notify",
        "ChoosePayment": "ALL",
        "EncryptType": "1",
    },
    "CF0A3D4901D99459D8641516EC57210700E8A5C9AB26B1D021301E9CB93EF78D": {
        "MerchantID": "3002607",
        "ItemName": "Tom's Shop",
        "TotalAmount": "100",
    },
    "CEEAE01D2F9A8E74D4AC0DCE7735B046D73F35A5EC99558A31A2EE03159DA1C9": {
        "MerchantID": "3002607",
        "ItemName": "Test~Product",
        "TotalAmount": "200",
    },
    "7712A5E6EDC3B57086063C88568084C66CE882A21D40E74DE5ACA3B478C6F316": {
        "MerchantID": "3002607",
        "ItemName": "My Test Product",
        "TotalAmount": "300",
    },
    PUBLISHED_MAC: PUBLISHED,
}
names = st.from_regex(r"[0-9A-Za-z_]{1,8}", fullmatch=True)
forms = st.dictionaries(names, st.text(max_size=12), min_size=1, max_size=6).filter(
    # The order of names that differ only in case is not documented.
    lambda form: len({name.lower() for name in form}) == len(form)
)


@pytest.mark.parametrize("value", VECTORS)
def test_check_values_match_the_published_vectors(value: str) -> None:
    assert check_mac_value(VECTORS[value], KEY, IV) == value
    backwards = dict(reversed(VECTORS[value].items()))
    assert check_mac_value(backwards | {"CheckMacValue": "x"}, KEY, IV) == value


@given(forms)
def test_the_adapter_the_emulator_and_the_test_compute_the_same_value(form: dict[str, str]) -> None:
    value = check_mac_value(form, KEY, IV)
    assert value == checkmac.compute(form.items(), KEY, IV) == mac(form)


@pytest.mark.parametrize(
    "text", ["' ~ ! * ( ) - _ . & = # + % / ? : @ ; , $ < > \"", "書店", "é🙂"]
)
def test_special_characters_are_encoded_consistently(text: str) -> None:
    form = {"ItemName": text}
    assert check_mac_value(form, KEY, IV) == checkmac.compute(form.items(), KEY, IV) == mac(form)


def test_field_names_are_sorted_case_insensitively() -> None:
    form = {"TradeNo": "1", "auth_code": "2", "card4no": "3", "Amount": "4"}
    assert check_mac_value(form, KEY, IV) == mac(form)


@given(forms)
def test_a_signed_form_is_parsed_unchanged_or_refused_as_ambiguous(form: dict[str, str]) -> None:
    body = urlencode(signed(form)).encode()
    if any("=" in value.partition("&")[2] for value in form.values()):
        with pytest.raises(ValueError, match="ambiguous"):
            verify_form(HERE, body)
        return
    assert verify_form(HERE, body) == signed(form)


def test_a_value_that_could_be_split_into_two_fields_is_refused() -> None:
    form = signed({"RtnCode": "1", "RtnMsg": "ok", "SimulatePaid": "1"})
    value = form["CheckMacValue"]
    forged = {"RtnCode": "1", "RtnMsg": "ok&SimulatePaid=1", "CheckMacValue": value}
    assert mac(forged) == value  # so the signature is valid
    with pytest.raises(ValueError, match="ambiguous"):
        verify_form(HERE, urlencode(forged).encode())


def test_a_value_may_contain_an_ampersand_that_does_not_start_a_field() -> None:
    form = signed({"RtnCode": "1", "RtnMsg": "Fish & Chips", "SimulatePaid": "0"})
    assert verify_form(HERE, urlencode(form).encode()) == form


def test_field_names_that_differ_only_in_case_are_refused() -> None:
    form = signed({"SimulatePaid": "1", "simulatepaid": "0"})
    with pytest.raises(ValueError, match="repeated"):
        verify_form(HERE, urlencode(form).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        urlencode(signed({"A": "\ufffd"})).encode().replace(b"%EF%BF%BD", b"%FF"),
        urlencode(signed({"a b": "1"})).encode(),
        urlencode(signed({"": "1"})).encode(),
        urlencode(signed({f"A{number}": "1" for number in range(FIELDS_MAX)})).encode(),
        urlencode(signed({"A": "1"})).encode() + b"&A=1",
        urlencode(signed({"A": "1"})).encode() + b"&CheckMacValue=",
    ],
)
def test_a_malformed_or_unsigned_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        verify_form(HERE, body)


@pytest.mark.parametrize("name", ["hash_key", "hash_iv"])
def test_a_form_is_refused_if_the_account_has_no_secret(name: str) -> None:
    empty = account_at("http://nowhere.test", **{name: ""})
    form = {"A": "1"}
    value = check_mac_value(form, empty.credentials["hash_key"], empty.credentials["hash_iv"])
    with pytest.raises(ValueError, match="no hash_key or hash_iv"):
        verify_form(empty, urlencode(form | {"CheckMacValue": value}).encode())
