"""The databases as a cluster: who leads, who stands by, and whether all is well."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drills.ha.network import DATABASES, address
from drills.ha.programs import STATUS_PORT, Passwords
from drills.processes import Program

_PATIENCE_S = 120.0
_LOOK_S = 0.5
_ANSWER_S = 2.0


class NotWholeError(Exception):
    """The cluster did not become what was waited for; the message has what its members say."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members as one of them sees them: by name their role and state."""

    roles: Mapping[str, str]
    states: Mapping[str, str]

    @property
    def leader(self) -> str:
        """Give the leader's name; empty where there is none."""
        return next((name for name, role in self.roles.items() if role == "leader"), "")

    @property
    def standby(self) -> str:
        """Give the name of the synchronous standby; empty where there is none."""
        return next((name for name, role in self.roles.items() if role == "sync_standby"), "")

    @property
    def is_whole(self) -> bool:
        """Tell whether there are a leader and a synchronous standby, and all follow it."""
        follows = {self.states[name] for name in self.roles if name != self.leader}
        return bool(self.leader and self.standby) and (
            len(self.roles) == len(DATABASES) and follows == {"streaming"}
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The programs of all hosts of the databases, by host."""

    programs: Mapping[str, Program]
    passwords: Passwords

    async def start(self) -> None:
        """Start everything, and wait until the cluster is whole."""
        for program in self.programs.values():
            await program.start()
        await self.whole()

    async def members(self) -> Members:
        """Ask the members one after the other until one answers."""
        return await asyncio.to_thread(_members)

    async def whole(self) -> Members:
        """Wait until there is a leader with a synchronous standby, and nobody is left behind."""
        return await self.until(lambda members: members.is_whole, "whole")

    async def until(self, reached: Callable[[Members], bool], what: str) -> Members:
        """Wait for the members to be as they are wanted (`NotWholeError`)."""
        deadline = time.monotonic() + _PATIENCE_S
        while not reached(members := await self.members()):
            if time.monotonic() > deadline:
                raise NotWholeError(f"not {what} within {_PATIENCE_S:g} s: {members}")
            await asyncio.sleep(_LOOK_S)
        return members

    async def switch_over(self) -> None:
        """Have the leader hand over to its synchronous standby, as `patronictl` does."""
        members = await self.whole()
        fields = {"leader": members.leader, "candidate": members.standby}
        await asyncio.to_thread(_switch_over, members.leader, self.passwords.rest, fields)


def _members() -> Members:
    for host in DATABASES:
        with suppress(OSError, ValueError):
            url = f"http://{address(host)}:{STATUS_PORT}/cluster"
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["members"]
            return Members(
                {member["name"]: member["role"] for member in found},
                {member["name"]: member["state"] for member in found},
            )
    return Members({}, {})


def _switch_over(leader: str, password: str, fields: Mapping[str, str]) -> None:
    url = f"http://{address(leader)}:{STATUS_PORT}/switchover"
    manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    manager.add_password(None, url, "patroni", password)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
    request = urllib.request.Request(url, json.dumps(fields).encode(), method="POST")
    with opener.open(request, timeout=60):
        pass
