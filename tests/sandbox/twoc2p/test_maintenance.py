from xml.etree import ElementTree as ET

from payintent_sandbox.emulators.twoc2p import envelope
from payintent_sandbox.emulators.twoc2p.keys import read_private, read_public
from tests.sandbox.twoc2p.emulator_setup import APPROVED, MERCHANT, UNSETTLED, Shop, pair

GATEWAY = read_private(pair("gateway")[0])
OURS = read_private(pair(MERCHANT)[0])


async def act(
    shop: Shop, process: str, invoice: str, amount: str = "", name: str = "", key: str = ""
) -> ET.Element:
    """Call the maintenance API. The emulator's code seals the request and unseals the response."""
    root = ET.Element("PaymentProcessRequest")
    for tag, text in {
        "merchantID": MERCHANT,
        "processType": process,
        "invoiceNo": invoice,
        "actionAmount": amount,
        "userDefined1": name,
        "idempotencyID": key,
    }.items():
        ET.SubElement(root, tag).text = text
    sealed = envelope.seal(ET.tostring(root), GATEWAY.public_key(), OURS)
    status, body = await shop.post("/PaymentAction/2.0/action", sealed.encode())
    assert status == 200, body
    gateway_key = read_public(pair("gateway")[1])
    return ET.fromstring(envelope.unseal(body.decode(), gateway_key, OURS))  # noqa: S314


async def paid(shop: Shop, card: str = APPROVED) -> str:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=card)
    return order["invoiceNo"]


async def test_refunds_are_limited_to_the_remainder_and_listed_by_reference(
    shop: Shop,
) -> None:
    invoice = await paid(shop)
    first = await act(shop, "R", invoice, "590.00", "ref_1")
    over = await act(shop, "R", invoice, "1000.01", "ref_2")
    remainder = await act(shop, "R", invoice, "1000.00", "ref_3")
    none = await act(shop, "R", invoice, "0.01", "ref_4")
    codes = [answer.findtext("respCode") for answer in (first, over, remainder, none)]
    assert codes == ["00", "40", "00", "49"]
    refunds = (await act(shop, "RS", invoice)).findall("refundList/refund")
    references = [refund.get("referenceNo") for refund in refunds]
    assert references == [answer.findtext("refundReferenceNo") for answer in (first, remainder)]
    assert set(refunds[0].attrib) == {"amount", "status", "referenceNo", "dateTime"}
    assert (await shop.get_invoice(invoice))["refunded"] == "1590.00"


async def test_a_repeated_refund_request_refunds_again(shop: Shop) -> None:
    invoice = await paid(shop)
    for _ in range(2):
        await act(shop, "R", invoice, "1.00", "ref_1")
    assert (await shop.get_invoice(invoice))["refunded"] == "2.00"


async def test_a_repeated_idempotency_id_returns_the_first_response(
    shop: Shop,
) -> None:
    invoice = await paid(shop, UNSETTLED)
    refused = await act(shop, "R", invoice, "1590.00", key="one")
    voided = await act(shop, "V", invoice, "1590.00", key="one")
    assert ET.tostring(voided) == ET.tostring(refused)
    assert (await shop.get_invoice(invoice))["status"] == "A"
    settled = await paid(shop)
    for _ in range(2):
        assert (await act(shop, "R", settled, "1.00", key="two")).findtext("respCode") == "00"
    assert (await shop.get_invoice(settled))["refunded"] == "1.00"


async def test_a_refund_in_the_portal_is_listed(shop: Shop) -> None:
    invoice = await paid(shop)
    await shop.refund_in_portal(invoice, "590.00")
    [refund] = (await act(shop, "RS", invoice)).findall("refundList/refund")
    assert (refund.get("amount"), refund.get("status")) == ("590.00", "RF")


async def test_only_unsettled_payments_are_voided_and_only_settled_ones_refunded(
    shop: Shop,
) -> None:
    settled, unsettled = await paid(shop), await paid(shop, UNSETTLED)
    assert (await act(shop, "V", settled)).findtext("respCode") == "21"
    assert (await act(shop, "R", unsettled, "1.00")).findtext("respCode") == "12"
    voided = await act(shop, "V", unsettled, "1590.00")
    assert (voided.findtext("respCode"), voided.findtext("status")) == ("00", "V")
    assert (await act(shop, "V", unsettled)).findtext("respCode") == "29"


async def test_each_invalid_request_has_its_own_code(shop: Shop) -> None:
    invoice = await paid(shop)
    assert (await act(shop, "R", "nobody", "1.00")).findtext("respCode") == "16"
    assert (await act(shop, "R", invoice, "1")).findtext("respCode") == "18"
    assert (await act(shop, "R", invoice, "0.00")).findtext("respCode") == "40"
    assert (await act(shop, "X", invoice)).findtext("respCode") == "17"


async def test_requests_sealed_with_an_unknown_key_are_refused(shop: Shop) -> None:
    stranger = read_private(pair("stranger")[0])
    for body in (envelope.seal(b"<a/>", GATEWAY.public_key(), stranger), "", "a.b.c"):
        assert (await shop.post("/PaymentAction/2.0/action", body.encode()))[0] == 400


async def test_the_gateway_publishes_its_public_key(shop: Shop) -> None:
    assert (await shop.show(f"{shop.url}/_twoc2p/public-key"))[1] == pair("gateway")[1]
