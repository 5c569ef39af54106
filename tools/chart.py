"""Render the Helm chart and check the manifests: `python -m tools.chart`.

`HELM` is the path of Helm; the default is `helm` on PATH. Without Helm, the command prints which
checks were skipped and exits with 0.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.openapi.install import install_python

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "payintent"
FULL = ROOT / "tests" / "docs" / "helm_values.yaml"  # enables everything
LEAST = [
    *(
        "--set",
        "image.repository=registry.example.com/payintent",
        "--set",
        "existingSecret=payintent",
    ),
    *("--set", f"image.digest=sha256:{64 * '0'}"),
    *("--set", "settings.PAYINTENT_API_BASE=https://pay.example.com/v1"),
    *("--set", "settings.PAYINTENT_CHECKOUT_BASE=https://pay.example.com/c"),
]
#: The oldest Kubernetes version that Chart.yaml allows, and the newest that the validator supports.
VERSIONS = ("1.29.0", "1.37.0")
LOCK = ROOT / "requirements" / "kubernetes.txt"
FOLDER = Path(sys.prefix) / "kubernetes"


def main() -> int:
    """Lint, render and validate the chart, and return the exit status."""
    helm = os.environ.get("HELM") or shutil.which("helm")
    if not helm:
        print("helm is not on PATH, and HELM is not set. The chart was not rendered, and its")
        print("manifests were not validated. `make test` checks only the chart's files.")
        return 0
    version = run(helm, "version", "--short").strip()
    run(helm, "lint", "--strict", str(CHART), "--values", str(FULL))
    rendered = {
        (name, version): run(helm, "template", "pay", str(CHART), "--kube-version", version, *more)
        for version in VERSIONS
        for name, more in (("full", ["--values", str(FULL)]), ("least", LEAST))
    }
    problems = [line for text in rendered.values() for line in findings(text)]
    print(f"helm {version}: linted, and rendered {len(rendered)} times")
    print(
        "\n".join(problems) or "pods are hardened, images have digests, and no secret is rendered"
    )
    return 1 if problems else validate(rendered)


def run(*command: str) -> str:
    """Return the output of a command. If it fails, exit with its output."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if process.returncode:
        sys.exit(f"{' '.join(command)}\n{process.stdout}{process.stderr}")
    return process.stdout


def validate(rendered: dict[tuple[str, str], str]) -> int:
    """Validate the manifests with the Kubernetes schemas."""
    try:
        install_python(LOCK, FOLDER)
    except subprocess.CalledProcessError:
        print("kubernetes-validate cannot be installed, so the manifests were not validated")
        return 0
    program = str(FOLDER / "bin" / "kubernetes-validate")
    for (name, version), text in rendered.items():
        file = FOLDER / f"{name}-{version}.yaml"
        file.write_text(text)
        run(program, "--strict", "--quiet", "-k", version.rpartition(".")[0], str(file))
    print(f"kubernetes-validate: valid for Kubernetes {' and '.join(VERSIONS)}")
    return 0


def findings(text: str) -> Iterator[str]:
    """List violations in the manifests, such as secrets or pods with excessive rights."""
    for manifest in filter(None, yaml.safe_load_all(text)):
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Secret":
            yield f"{name} contains a secret"
        if pod := manifest.get("spec", {}).get("template", {}).get("spec"):
            yield from (f"{name} {problem}" for problem in _problems(pod))


def _problems(pod: dict[str, Any]) -> Iterator[str]:
    if pod.get("enableServiceLinks") is not False:
        yield "receives service names in its environment"
    if pod.get("automountServiceAccountToken") is not False:
        yield "receives a cluster token"
    if not pod.get("securityContext", {}).get("runAsNonRoot"):
        yield "may run as root"
    for container in pod["containers"]:
        rights = container.get("securityContext", {})
        if "@sha256:" not in container["image"]:
            yield "has an image without a digest"
        if rights.get("allowPrivilegeEscalation") is not False:
            yield "allows privilege escalation"
        if not rights.get("readOnlyRootFilesystem"):
            yield "has a writable root file system"
        if rights.get("capabilities", {}).get("drop") != ["ALL"]:
            yield "has capabilities"
        if not container.get("resources", {}).get("limits", {}).get("memory"):
            yield "has no memory limit"


if __name__ == "__main__":
    sys.exit(main())
