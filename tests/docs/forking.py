"""Commands of the service without the second that each needs to import it: a process forks them.

`python forking.py serve SOCKET` imports the service once. `python forking.py run SOCKET WORD…` has
it run a command with its own arguments, environment, folder and streams, and ends as that does.
"""

import json
import os
import socket
import sys
from pathlib import Path

_HEADER_MAX = 256 * 1024
_STREAMS = 3


def serve(path: str) -> None:
    """Fork a process for each command, one after the other, until a signal."""
    import aiohttp  # noqa: F401 - what commands import as they go
    import rich.console
    import rich.table  # noqa: F401

    import payintent.api.authentication
    import payintent.cli.commands
    import payintent.cli.doctor
    import payintent.cli.operation_commands  # noqa: F401 # pyright: ignore[reportUnusedImport]

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen()
        Path(f"{path}.new").rename(path)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                os._exit(_run(connection))
            connection.close()
            os.wait()


def _run(connection: socket.socket) -> int:
    from payintent import cli

    header, streams, _, _ = socket.recv_fds(connection, _HEADER_MAX, _STREAMS)
    words, environment, folder = json.loads(header)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["payintent", *words]
    try:
        cli.main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    else:
        status = 0
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([status]))
    return status


def run(path: str, words: list[str]) -> int:
    """Have a command run; gives its status."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        header = json.dumps([words, dict(os.environ), str(Path.cwd())]).encode()
        socket.send_fds(connection, [header], list(range(_STREAMS)))
        said = connection.recv(1)
        return said[0] if said else 1


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], sys.argv[3:]))
