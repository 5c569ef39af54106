"""PgBouncer before the database of cell 1, which is held while that moves to another server.

The file is that of deploy/ha; the drill changes addresses, folders and the database's server alone.
"""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from drills.ha.programs import NOBODY, SHIPPED
from drills.processes import Program
from payintent_sandbox.postgres import DATABASE, USER

_SHIPPED_SERVER = "host=127.0.0.1 port=5000"


class Pooler:
    """PgBouncer on a port of its own, and the commands that an operator gives it."""

    def __init__(self, folder: Path, port: int, server_url: str) -> None:
        """Write its files; it leads to a server first."""
        self._folder = folder / "pgbouncer"
        self._folder.mkdir()
        self._port = port
        self._password = urlsplit(server_url).password or ""
        users = self._folder / "userlist.txt"
        users.write_text(f'"{USER}" "{self._password}"\n')
        self._own(users)
        self._config.write_text(self._text(server_url))
        self._own(self._config)
        self._own(self._folder, mode=0o711)
        command = [*NOBODY, "pgbouncer", str(self._config)]
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.program = Program("pgbouncer", command, path, folder)

    @property
    def url(self) -> str:
        """Give the address of the cell's database through it."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/{DATABASE}?sslmode=disable"

    @property
    def environment(self) -> Mapping[str, str]:
        """Give what its commands need beside their words."""
        return {"PGPASSWORD": self._password}

    @property
    def pause(self) -> str:
        """Give the command that holds all clients once their transactions have ended."""
        return shlex.join(self._console("PAUSE payintent"))

    @property
    def resume(self) -> str:
        """Give the command that lets clients go on where they were."""
        return shlex.join(self._console("RESUME payintent"))

    def switch_to(self, server_url: str) -> str:
        """Write what leads to another server; gives the command that lets clients go on there."""
        prepared, script = self._folder / "new.ini", self._folder / "switch.sh"
        prepared.write_text(self._text(server_url))
        self._own(prepared)
        reload = shlex.join(self._console("RELOAD", "RESUME payintent"))
        script.write_text(f"set -e\ncp -p {prepared} {self._config}\nexec {reload}\n")
        return f"sh {script}"

    @property
    def _config(self) -> Path:
        return self._folder / "pgbouncer.ini"

    def _console(self, *statements: str) -> list[str]:
        address = f"host=127.0.0.1 port={self._port} user={USER} dbname=pgbouncer"
        words = [word for statement in statements for word in ("-c", statement)]
        return ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *words, address]

    def _text(self, server_url: str) -> str:
        text = (SHIPPED / "pgbouncer.ini").read_text()
        server = f"host=127.0.0.1 port={urlsplit(server_url).port}"
        text = text.replace(_SHIPPED_SERVER, server).replace("6432", str(self._port))
        text = text.replace("/etc/pgbouncer/userlist.txt", str(self._folder / "userlist.txt"))
        text = text.replace("/run/postgresql/pgbouncer.pid", str(self._folder / "pid"))
        return f"{text}\nadmin_users = {USER}\n"

    def _own(self, path: Path, mode: int = 0o600) -> None:
        path.chmod(mode)
        shutil.chown(path, "nobody", "nogroup")
