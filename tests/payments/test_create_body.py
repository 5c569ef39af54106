"""Invalid, large and deeply nested bodies are rejected; metadata is preserved byte for byte."""

import gzip
import sys
from uuid import uuid4

import pytest

from payintent.http.bodies import DEPTH_MAX
from tests.support.arrange import bring_to, count, document, post, refusal, view
from tests.support.world import Api

_BAD_REQUEST = (400, "BAD_REQUEST")

_MALFORMED_BODIES: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "cut": document()[:-1],
    "two": document() * 2,
    "trailing": document() + b"x",
    "trailing comma": document()[:-1] + b",}",
    "single quotes": document().replace(b'"', b"'"),
    "comment": b"/* */" + document(),
    "byte order mark": b"\xef\xbb\xbf" + document(),
    "UTF-16": document().decode().encode("utf-16"),
    "Latin-1 in a known field": document(payer_uid='"\u00e9"').decode().encode("latin-1"),
    "bad UTF-8 in the amount": document().replace(b"1590.00", b"\xff"),
    "bad UTF-8 in metadata": document(metadata='{"a":"?"}').replace(b"?", b"\xc3\x28"),
    "bad UTF-8 in an unknown field": document(x='"?"').replace(b"?", b"\xed\xa0\x80"),
    "bad escape in the amount": document(amount='"\\q"'),
    "lone surrogate in the amount": document(amount='"\\ud800 and on"'),
    "lone surrogate in payer_uid": document(payer_uid='"\\udc00 and on"'),
    "lone surrogate in an unknown field": document(
        x='"\\ud800 and on"', metadata='{"a":"\\ud800"}'
    ),
    "lone surrogate beside metadata": document(payer_uid='"\\uDBFF"', metadata='{"a":"\\ud800"}'),
    "lone surrogate in a key": document().replace(b'"payer_uid"', b'"payer_uid\\ud800"'),
    "lone surrogate outside of a string": document(metadata='{"a":\\ud800}'),
    "control character": document(payer_uid='"a\tb"'),
    "control character in metadata": document(metadata='{"a":"a\nb"}'),
    "NaN": document(metadata='{"a":NaN}'),
    "Infinity": document(metadata='{"a":-Infinity}'),
    "leading zero": document(metadata='{"a":01}'),
    "no digits after the point": document(metadata='{"a":1.}'),
    "short escape": document(metadata='{"a":"\\u12"}'),
    "trailing comma in metadata": document(metadata='{"a":1,}'),
    "key without quotes": document(metadata="{a:1}"),
    "unclosed brackets": b"[" * 65_000,
    "unclosed objects": b'{"x":' * 13_000,
    "deep unknown field": document(x="[" * 30_000 + "]" * 30_000),
    "deep metadata": document(metadata='{"a":' + "[" * 8_000 + "]" * 8_000 + "}"),
}


async def test_a_malformed_json_body_is_a_bad_request(api: Api) -> None:
    refusals = {name: refusal(await post(api, body)) for name, body in _MALFORMED_BODIES.items()}
    assert refusals == dict.fromkeys(_MALFORMED_BODIES, _BAD_REQUEST)
    assert await count(api) == 0


async def test_the_content_type_must_be_json(api: Api) -> None:
    for content_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "application/jsonx",
    ):
        answer = await post(api, document(), Content_Type=content_type)
        assert refusal(answer) == (415, "BAD_REQUEST"), content_type
    for content_type in (
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;",
    ):
        assert (await post(api, document(), Content_Type=content_type)).status == 201, content_type


async def test_a_compressed_body_is_refused(api: Api) -> None:
    answer = await post(api, gzip.compress(document()), Content_Encoding="gzip")
    assert refusal(answer) == (415, "BAD_REQUEST")
    assert "Content-Encoding" in answer.json["message"]
    assert (await post(api, document(), Content_Encoding="identity")).status == 201


async def test_a_missing_body_is_named(api: Api) -> None:
    answer = await post(api, b"")
    assert refusal(answer) == _BAD_REQUEST
    assert answer.json["message"] == "the request must have a JSON body"


_METADATA = [
    "{}",
    "{ }",
    '{"b":1,"a":2,"B":3}',
    '{"a":1.0,"b":1e2,"c":1E+2,"d":-0,"e":-0.0,"f":0.10}',
    '{"n":123456789012345678901234567890.123456789012345678901234567890}',
    '{"n":1e400,"m":-1e-400,"big":' + "9" * 1_000 + "}",
    '{"s":"\\u0041\\/\\n\\u00e9","t":"é\U0001f600","u":"\\ud83d\\ude00","v":"\\u0000"}',
    '{"a":1,"a":2,"a":{"a":1,"a":2}}',
    '{ "a" : [ 1 , 2 ,\r\n\t{ } ] }',
    '{"":"","\\u0000":null,"__proto__":{"x":1},"t":true,"f":false}',
    '{"product":{"name":"<script>","quantity":1e400,"detail":null,"image":7},"order_id":9}',
    '{"product":[],"order_id":{"a":1}}',
    '{"product":"text","order_id":' + "1" * 1_000 + "}",
    '{"a":"\\ud83d"}',  # lone surrogates, which strict decoders refuse
    '{"a":"\\uDE00","b":"\\ud83dx","c":"\\uD83D\\u0041","d":"\\ud83d\\ud83d\\ude00","e":"\\\\ud83d"}',
    '{"a":"\\ud83d\\n","\\uDBFF":{"\\udc00":["\\ud800","\\udfff\\\\"]},"f":"\\ud83d\\ude00"}',
    '{"product":{"name":"\\ud83d","detail":"\\udc00","image":"https://i/\\ud800","quantity":1}}',
    '{"product":{"category":"\\udfff","vendor":"\\ud800\\ud800"},"order_id":"\\ud83d"}',
]


@pytest.mark.parametrize("metadata", _METADATA, ids=range(len(_METADATA)))
async def test_metadata_is_returned_byte_for_byte_everywhere(api: Api, metadata: str) -> None:
    key, body = str(uuid4()), document(metadata=metadata)
    part = b'"metadata":' + metadata.encode()
    created = await post(api, body, Idempotency_Key=key)
    assert created.status == 201
    assert part in created.body
    assert (await post(api, body, Idempotency_Key=key)).body == created.body
    assert part in (await api.get(created.json["id"])).body
    assert part in (await api.send("GET", "/v1/payments", headers=api.bearer())).body
    assert (await view(api, created)).status == 200
    checkout_page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert checkout_page.status == 200
    await bring_to(api, created, "PAID")
    assert part in (await api.get(created.json["id"])).body
    [event] = await api.world.rows("SELECT body FROM event")
    assert part.decode() in event["body"]


async def test_metadata_has_at_most_16_kib(api: Api) -> None:
    for size, status in ((16 * 1024, 201), (16 * 1024 + 1, 400)):
        metadata = '{"a":"' + "x" * (size - 8) + '"}'
        assert len(metadata) == size
        answer = await post(api, document(metadata=metadata))
        assert answer.status == status, answer.body
    wide = '{"a":"' + "ก" * 5_459 + '"}'  # three bytes per character
    assert refusal(await post(api, document(metadata=wide))) == _BAD_REQUEST


async def test_metadata_has_at_most_32_levels(api: Api) -> None:
    for levels, status in ((32, 201), (33, 400)):
        inner = levels - 1
        arrays = '{"a":' + "[" * inner + "]" * inner + "}"
        objects = '{"a":' * inner + "{}" + "}" * inner
        for metadata in (arrays, objects):
            assert (await post(api, document(metadata=metadata))).status == status, levels
    in_text = '{"a":"' + "[{" * 500 + '","b":"\\"[[\\\\","c":[]}'
    assert (await post(api, document(metadata=in_text))).status == 201


async def test_a_body_has_at_most_64_kib(api: Api) -> None:
    for size, status in ((64 * 1024, 201), (64 * 1024 + 1, 413)):
        body = document(x='""')
        body = body[:-2] + b"x" * (size - len(body)) + body[-2:]
        assert len(body) == size

        async def chunks(whole: bytes = body):
            for start in range(0, len(whole), 10_000):
                yield whole[start : start + 10_000]

        for content in (body, chunks()):
            answer = await post(api, content)  # type: ignore[arg-type]
            assert answer.status == status
            if status == 413:
                assert refusal(answer) == (413, "BAD_REQUEST")
    assert (await api.create()).status == 201  # the client's connections still work


async def test_a_payment_stored_with_numbers_too_long_for_python_is_shown(api: Api) -> None:
    metadata = '{"order_id":' + "7" * 5_000 + ',"product":{"quantity":' + "7" * 5_000 + "}}"
    checkout_id = (await api.world.create(metadata=metadata)).checkout_id
    response = await api.send("GET", f"/v1/checkout/{checkout_id}")
    assert (response.status, response.json["product"]) == (200, {})
    assert (await api.send("GET", f"/c/{checkout_id}")).status == 200


async def test_the_maximum_depth_does_not_depend_on_the_recursion_limit(api: Api) -> None:
    allowed = document(x="[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1))
    too_deep = document(x="[" * DEPTH_MAX + "]" * DEPTH_MAX)
    in_text = document(x='"' + "[" * 1_000 + '"')
    default_limit = sys.getrecursionlimit()
    try:
        for limit in (default_limit, 100_000):
            sys.setrecursionlimit(limit)
            statuses = [(await post(api, body)).status for body in (allowed, too_deep, in_text)]
            assert statuses == [201, 400, 201]
    finally:
        sys.setrecursionlimit(default_limit)
