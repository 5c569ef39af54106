"""Serve packages for merchants, such as the SDKs, to pip and npm under `/packages/`.

A release contains the packages that were built with it, so that merchants install the version that
matches the service. The setting `packages_dir` can specify a different folder.
"""

import asyncio
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from payintent.core.errors import NotFoundError
from payintent.http.responses import etag_response

_PACKAGE_FOLDER = "packages"  # tools/build_hook.py adds it to the wheel
_MEDIA_TYPES = {".whl": "application/zip", ".zip": "application/zip", ".tgz": "application/gzip"}
_PYTHON_SUFFIX = ".whl"
_VERSION = re.compile(r"-(?=\d)")
_HEADERS = {
    "Cache-Control": "public, max-age=300",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True)
class Package:
    """An installable file. `project` is its normalized name (PEP 503)."""

    file_name: str
    project: str
    media_type: str
    content: bytes
    digest: str

    @property
    def is_python(self) -> bool:
        return self.file_name.endswith(_PYTHON_SUFFIX)

    @property
    def url(self) -> str:
        return f"/packages/files/{self.file_name}"


@cache
def _read_packages(folder: Traversable) -> dict[str, Package]:
    packages: dict[str, Package] = {}
    if not folder.is_dir():
        return packages
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        media_type = _MEDIA_TYPES.get(Path(file.name).suffix)
        if media_type is not None:
            content = file.read_bytes()
            project = re.sub(r"[-_.]+", "-", _VERSION.split(file.name)[0]).lower()
            digest = sha256(content).hexdigest()
            packages[file.name] = Package(file.name, project, media_type, content, digest)
    return packages


class PackageRoutes:
    """Routes that serve the packages in a folder. "" means the release's folder."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def routes(self) -> list[Route]:
        return [
            Route("/packages", self._redirect, methods=["GET"]),
            Route("/packages/", self._get_index, methods=["GET"]),
            Route("/packages/files/{name}", self._get_file, methods=["GET"]),
            Route("/packages/{project}/", self._get_project, methods=["GET"]),
        ]

    async def _load_packages(self) -> dict[str, Package]:
        folder = resources.files("payintent") / _PACKAGE_FOLDER
        return await asyncio.to_thread(
            _read_packages, Path(self._folder) if self._folder else folder
        )

    async def _get_index(self, request: Request) -> Response:
        """`GET /packages/`: Python projects for pip (PEP 503), and all other files."""
        del request
        packages = (await self._load_packages()).values()
        projects = sorted({package.project for package in packages if package.is_python})
        links = [(f"/packages/{project}/", project) for project in projects]
        links += [(package.url, package.file_name) for package in packages if not package.is_python]
        return _render_list("Packages", links)

    async def _get_project(self, request: Request) -> Response:
        """`GET /packages/{project}/`: a project's files with their digests."""
        project: str = request.path_params["project"]
        packages = (await self._load_packages()).values()
        files = [package for package in packages if package.project == project]
        if not files:
            raise NotFoundError("no such package")
        links = [(f"{file.url}#sha256={file.digest}", file.file_name) for file in files]
        return _render_list(project, links)

    async def _get_file(self, request: Request) -> Response:
        """`GET /packages/files/{name}`: a wheel, an npm package or a plugin archive."""
        package = (await self._load_packages()).get(request.path_params["name"])
        if package is None:
            raise NotFoundError("no such package")
        return etag_response(
            request, package.content, f'"{package.digest}"', _HEADERS, package.media_type
        )

    async def _redirect(self, request: Request) -> Response:
        del request
        return RedirectResponse("/packages/", 308)


def _render_list(title: str, links: list[tuple[str, str]]) -> Response:
    items = "\n".join(f'<a href="{escape(url)}">{escape(text)}</a><br>' for url, text in links)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="pypi:repository-version" content="1.0">\n'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{items}\n</body>\n</html>\n"
    )
    return Response(page, 200, _HEADERS, "text/html")
