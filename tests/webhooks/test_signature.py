import base64
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from payintent.merchants.callback_secrets import generate_secret
from payintent.merchants.model import encode_secret
from payintent.webhooks.model import sign

BODY = b'{"test": 2432232314}'
WEBHOOK_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"


def test_the_signature_matches_the_published_example():
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign([key], WEBHOOK_ID, 1614265330, BODY) == expected


@settings(max_examples=25, deadline=None)
@given(key=st.binary(min_size=24, max_size=64), text=st.text(max_size=200))
def test_the_official_library_verifies_every_secret_and_body(key, text):
    body = json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "replace")
    headers = _headers([key], body)
    assert Webhook(encode_secret(key)).verify(body, headers) is not None


def test_at_most_three_rotating_secrets_sign_an_event():
    keys = [generate_secret() for _ in range(4)]
    headers = _headers(keys, BODY)
    assert headers["webhook-signature"].count("v1,") == 3
    for key in keys[:3]:
        Webhook(encode_secret(key)).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(encode_secret(keys[3])).verify(BODY, headers)


def test_the_newest_secret_signs_first():
    new, old = generate_secret(), generate_secret()
    first = sign([new, old], "id", 1, BODY).split(" ")[0]
    assert first == sign([new], "id", 1, BODY)


def test_a_changed_body_id_or_time_does_not_verify():
    key = generate_secret()
    webhook = Webhook(encode_secret(key))
    headers = _headers([key], BODY)
    webhook.verify(BODY, headers)
    changed_time = str(int(headers["webhook-timestamp"]) - 1)
    for body, changed in (
        (BODY + b" ", {}),
        (BODY, {"webhook-id": "other"}),
        (BODY, {"webhook-timestamp": changed_time}),
    ):
        with pytest.raises(WebhookVerificationError):
            webhook.verify(body, headers | changed)


@pytest.mark.parametrize(("keys", "webhook_id"), [([], "id"), ([b"k"], ""), ([b"k"], "a.b")])
def test_signing_fails_without_keys_or_a_valid_id(keys, webhook_id):
    with pytest.raises(ValueError, match="signature"):
        sign(keys, webhook_id, 1, BODY)


def test_a_new_secret_has_32_random_bytes_and_can_be_decoded():
    key = generate_secret()
    assert len(key) == 32
    assert key != generate_secret()
    assert base64.b64decode(encode_secret(key).removeprefix("whsec_"), validate=True) == key


@pytest.mark.parametrize("length", [0, 23, 65])
def test_a_key_with_an_invalid_length_cannot_be_encoded(length):
    with pytest.raises(ValueError, match="24 to 64"):
        encode_secret(bytes(length))


def _headers(keys, body):
    now = int(time.time())
    return {
        "webhook-id": WEBHOOK_ID,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(keys, WEBHOOK_ID, now, body),
    }
