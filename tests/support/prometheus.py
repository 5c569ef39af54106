"""A real Prometheus with our configuration, which scrapes a test's processes."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from tests.docs.parse_pages import ROOT
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.tools import tool

_FOLDER = ROOT / "deploy/prometheus"


class Prometheus:
    """A running Prometheus, with the query API that Grafana uses."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def ask(self, path: str, **parameters: str) -> Any:
        async with self._http.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            response = await answer.json()
        assert response["status"] == "success", response
        return response["data"]

    async def query(self, query: str) -> list[Any]:
        """Return the current series of a query."""
        return (await self.ask("query", query=query))["result"]

    async def collecting(self) -> bool:
        """Return whether all targets were scraped at least once."""
        try:
            targets = (await self.ask("targets", state="active"))["activeTargets"]
        except aiohttp.ClientError:
            return False  # it is still starting
        return all(target["health"] == "up" for target in targets)


@asynccontextmanager
async def running_prometheus(
    http: aiohttp.ClientSession, folder: Path, urls: dict[str, str]
) -> AsyncIterator[Prometheus]:
    """Run Prometheus with our configuration and these targets by job, scraped every second."""
    configuration = yaml.safe_load((_FOLDER / "prometheus.yaml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [
        str(_FOLDER / rule_file) for rule_file in configuration["rule_files"]
    ]
    for job in configuration["scrape_configs"]:
        job["static_configs"] = [{"targets": [urlsplit(urls[job["job_name"]]).netloc]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/prometheus",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(http, f"http://127.0.0.1:{port}")
        await wait_until(prometheus.collecting, "what Prometheus collects")
        yield prometheus
    finally:
        running.terminate()
        running.wait(PATIENCE_S)
