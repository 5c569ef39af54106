"""Continue a command as several processes."""

import signal
from collections.abc import Mapping

from payintent.cli.common import fail
from payintent.processes.listening import BindError
from payintent.processes.member import Member
from payintent.processes.supervisor import Plan, supervise

Address = tuple[str, int]


def become_member(count: int, addresses: Mapping[str, Address], retire: signal.Signals) -> Member:
    """Continue as a process of a group; end the command if an address is in use."""
    try:
        return supervise(Plan(count, addresses, retire))
    except BindError as error:
        fail(str(error))
