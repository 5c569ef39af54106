"""A command that goes on as several processes."""

import signal
from collections.abc import Mapping

from payintent.cli.common import fail
from payintent.processes.listening import BindError
from payintent.processes.member import Member
from payintent.processes.supervisor import Plan, supervise

Address = tuple[str, int]


def become_member(count: int, addresses: Mapping[str, Address], retire: signal.Signals) -> Member:
    """Go on as one of several processes; an address that is taken ends the command."""
    try:
        return supervise(Plan(count, addresses, retire))
    except BindError as error:
        fail(str(error))
