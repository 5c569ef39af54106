"""A shop for gunicorn with `--preload`: it uses its client before the workers are forked."""

import json
import os
from collections.abc import Callable, Iterable

from payintent_sdk import Client

CLIENT = Client(os.environ["SHOP_KEY"], os.environ["SHOP_BASE"])
CLIENT.payments.list(limit=1)


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Create a payment for the order in the path; respond with the order in the result."""
    name = environ["PATH_INFO"].strip("/")
    payment = CLIENT.payments.create(
        amount="1.00", currency="THB", payer_uid=name, metadata={"order_id": name}
    )
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([os.getpid(), payment.metadata["order_id"]]).encode()]
