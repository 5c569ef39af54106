"""Read a lock file: the packages, their pinned versions, and the packages that require them."""

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "payintent"
_COMMENT = re.compile(r"    # (?:via |  )(?P<name>[A-Za-z0-9._-]+)(?: \(.*\))?$")
# The service runs on CPython on Linux, so packages for other platforms are ignored. The Python
# version is the oldest supported version, so that the result does not depend on the running Python.
_TARGET = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned package; `required_by` names packages, or the project itself."""

    name: str
    version: str
    required_by: tuple[str, ...]


def read(path: Path) -> list[Package]:
    """List the packages that this lock installs on Linux, sorted by name."""
    packages: list[Package] = []
    for block in re.split(r"\n(?=[a-z0-9])", path.read_text().strip()):
        lines = block.splitlines()
        requirement = Requirement(lines[0].rstrip("\\"))
        if requirement.marker and not requirement.marker.evaluate(dict(_TARGET)):
            continue
        [pin] = requirement.specifier
        found = (_COMMENT.match(line) for line in lines[1:])
        required_by = tuple(sorted(match["name"] for match in found if match))
        packages.append(Package(requirement.name, pin.version, required_by))
    return sorted(packages, key=lambda package: package.name)
