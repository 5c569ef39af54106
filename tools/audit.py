"""Check the pinned packages for known vulnerabilities; the exit status is 1 if there are any.

`python -m tools.audit [LOCK…]` queries osv.dev through pip-audit, with a time limit. If the query
fails, it prints the reason in one line and exits with 0, so that `make check` also works offline.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = [
    "requirements/dev.txt",  # contains run and sandbox
    "requirements/build.txt",
    "requirements/clients.txt",
    "requirements/mcp.txt",
    "requirements/clients-long.txt",
    "requirements/kubernetes.txt",
    "requirements/ha.txt",
    "requirements/profile.txt",
    "examples/django/requirements.txt",
    "examples/fastapi/requirements.txt",
    "examples/flask/requirements.txt",
]
TIMEOUT_S = int(os.environ.get("AUDIT_TIMEOUT_S", "120"))
OSV_URL = os.environ.get("OSV_URL", "https://api.osv.dev/v1/query")
REASON_LENGTH_MAX = 200
# Vulnerabilities that do not affect us, with the reason. Remove an entry when its pin changes.
ACCEPTED: dict[str, str] = {}


def command(locks: list[str]) -> list[str]:
    """Return the pip-audit command, which reads the pins without resolving or installing them."""
    chosen = [part for lock in locks for part in ("--requirement", lock)]
    accepted = [part for name in ACCEPTED for part in ("--ignore-vuln", name)]
    return [
        *(sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"),
        *("--vulnerability-service", "osv", "--osv-url", OSV_URL, "--timeout", "10"),
        *("--format", "json", "--progress-spinner", "off"),
        *chosen,
        *accepted,
    ]


def main() -> int:
    """Print the vulnerabilities, or the reason why the check failed."""
    try:
        process = subprocess.run(  # noqa: S603
            command(sys.argv[1:] or LOCKS),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return _not_audited(f"no response within {TIMEOUT_S} s")
    if not process.stdout.strip():
        lines = process.stderr.strip().splitlines()
        return _not_audited(lines[-1] if lines else "pip-audit returned no output")
    return _judge(json.loads(process.stdout)["dependencies"])


def _judge(packages: list[dict[str, Any]]) -> int:
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        _not_audited(f"{len(skipped)} of {len(packages)} unknown to osv: {', '.join(skipped)}")
    found = [(package, item) for package in packages for item in package.get("vulns", [])]
    for package, item in found:
        versions = ", ".join(item["fix_versions"])
        fix = f"fixed in {versions}" if versions else "not fixed yet"
        description = item["description"][:REASON_LENGTH_MAX]
        print(f"{package['name']} {package['version']}: {item['id']}, {fix}: {description}")
    if not found and not skipped:
        print(f"no known vulnerabilities in {len(packages)} packages")
    return 1 if found else 0


def _not_audited(reason: str) -> int:
    print(f"packages not audited: {reason[:REASON_LENGTH_MAX]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
