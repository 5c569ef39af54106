"""The database cluster, with the roles and states of its members."""

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
    """The cluster did not reach the expected state. The message contains its members' states."""


@dataclass(frozen=True, slots=True)
class Members:
    """The role and state of each member by name, as reported by one member."""

    roles: Mapping[str, str]
    states: Mapping[str, str]

    @property
    def leader(self) -> str:
        """The leader's name, or an empty string."""
        return next((name for name, role in self.roles.items() if role == "leader"), "")

    @property
    def standby(self) -> str:
        """The synchronous standby's name, or an empty string."""
        return next((name for name, role in self.roles.items() if role == "sync_standby"), "")

    @property
    def is_whole(self) -> bool:
        """Whether a leader and a synchronous standby exist, and all members follow the leader."""
        follows = {self.states[name] for name in self.roles if name != self.leader}
        return bool(self.leader and self.standby) and (
            len(self.roles) == len(DATABASES) and follows == {"streaming"}
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The programs of the database and etcd hosts, by host."""

    programs: Mapping[str, Program]
    passwords: Passwords

    async def start(self) -> None:
        """Start all programs and wait until the cluster is complete."""
        for program in self.programs.values():
            await program.start()
        await self.whole()

    async def members(self) -> Members:
        """Query the members one after another until one responds."""
        return await asyncio.to_thread(_members)

    async def whole(self) -> Members:
        """Wait until the cluster is complete."""
        return await self.until(lambda members: members.is_whole, "whole")

    async def until(self, reached: Callable[[Members], bool], what: str) -> Members:
        """Wait until the members reach a state, or raise `NotWholeError`."""
        deadline = time.monotonic() + _PATIENCE_S
        while not reached(members := await self.members()):
            if time.monotonic() > deadline:
                raise NotWholeError(f"not {what} within {_PATIENCE_S:g} s: {members}")
            await asyncio.sleep(_LOOK_S)
        return members

    async def switch_over(self) -> None:
        """Switch over to the synchronous standby, as `patronictl switchover` does."""
        members = await self.whole()
        fields = {"leader": members.leader, "candidate": members.standby}
        await asyncio.to_thread(_switch_over, members.leader, self.passwords.rest, fields)


def _members() -> Members:
    for host in DATABASES:
        with suppress(OSError, ValueError):
            url = f"http://{address(host)}:{STATUS_PORT}/cluster"
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                members: list[dict[str, Any]] = json.load(answer)["members"]
            return Members(
                {member["name"]: member["role"] for member in members},
                {member["name"]: member["state"] for member in members},
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
