"""Print the modules that a client's first request imports."""

import json
import socket
import sys

from payintent_sdk import Client, PayintentError, RetryPolicy

with socket.socket() as closed_port:
    closed_port.bind(("127.0.0.1", 0))
    client = Client(
        "sk_test_x",
        f"http://127.0.0.1:{closed_port.getsockname()[1]}",
        retries=RetryPolicy(tries=1),
    )
    before = set(sys.modules)
    try:
        client.payments.get("pay_x")
    except PayintentError:
        print(json.dumps(sorted(set(sys.modules) - before)))
