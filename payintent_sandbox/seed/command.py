"""The implementation of `payintent seed`."""

import time

from payintent.cli.common import fail, run_with_service, show_progress
from payintent.service import Service
from payintent_sandbox.seed.history import NotASandboxError, seed


def run(payments: int, days: int) -> None:
    """Write the history; exit if the database does not belong to a sandbox."""
    began = time.monotonic()

    async def work(service: Service) -> None:
        with show_progress("writing payments", payments) as advance:
            await seed(service, payments, days, advance)

    try:
        run_with_service(work)
    except NotASandboxError as refused:
        fail(str(refused))
    print(f"wrote {payments:,} payments over {days} days in {time.monotonic() - began:.0f} s")
