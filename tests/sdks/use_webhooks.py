"""Verify webhooks in JSON from standard input; print the results."""

import base64
import json
import sys

from payintent_sdk import PayintentError, webhooks

for case in json.load(sys.stdin):
    body = base64.b64decode(case["body"])
    try:
        event = webhooks.verify(body, case["headers"], case["secrets"], now_s=case["now"])
    except PayintentError as error:
        print(type(error).__name__)
    except ValueError:
        print("misused")
    else:
        print(f"{event.type}/{event.id}")
