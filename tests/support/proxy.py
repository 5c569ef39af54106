"""deploy/nginx.conf in Debian's nginx, in front of a test's service."""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.docs.parse_pages import page
from tests.support.ports import free_port
from tests.support.tools import tool

NAME = "pay.example.com"
_WAIT_S = 30.0
_UPSTREAMS = re.compile(r"(?:    server 127\.0\.0\.1:\d+ max_fails=0;\n)+")

_AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/start.log;
events {{ worker_connections 4096; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/payintent.conf;
}}
"""


@asynccontextmanager
async def run_proxy(*ports: int, folder: Path) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """Run nginx in front of these ports; yield its URL and a context that trusts it."""
    _certify(folder)
    ours, plain = free_port(), free_port()
    conf = page("deploy/nginx.conf")
    for there, here in (
        ("listen 443 ", f"listen 127.0.0.1:{ours} "),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("/etc/ssl/payintent", str(folder)),
        ("/var/log/nginx", str(folder)),
    ):
        assert there in conf
        conf = conf.replace(there, here)
    (folder / "payintent.conf").write_text(_UPSTREAMS.sub(_servers(ports), conf))
    (folder / "nginx.conf").write_text(_AROUND.format(folder=folder))
    running = subprocess.Popen(
        [tool("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        await _listening(running, ours)
        yield f"http://127.0.0.1:{ours}", _trusting(folder)
    finally:
        running.terminate()
        running.communicate()


def _servers(ports: Sequence[int]) -> str:
    return "".join(f"    server 127.0.0.1:{port} max_fails=0;\n" for port in ports)


def _certify(folder: Path) -> None:
    key, certificate = folder / "privkey.pem", folder / "fullchain.pem"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "2"]
    algorithm = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(
        [
            *("openssl", "req", "-x509", *algorithm, *subject),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


def _trusting(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _listening(running: "subprocess.Popen[bytes]", port: int) -> None:
    async with asyncio.timeout(_WAIT_S):
        while True:
            assert running.poll() is None, running.communicate()[1].decode()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.transport.abort()
                return
