"""Write the service's bill of materials (CycloneDX): `python -m tools.sbom FOLDER`."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tools import locked

FILE_NAME = "sbom.cdx.json"


def build() -> dict[str, Any]:
    """Describe `requirements/run.txt`. The same lock always results in the same bytes."""
    project = tomllib.loads((locked.ROOT / "pyproject.toml").read_text())["project"]
    packages = locked.read(locked.ROOT / "requirements" / "run.txt")
    references = {package.name: _purl(package.name, package.version) for package in packages}
    references[locked.PROJECT] = f"{locked.PROJECT}@{project['version']}"
    components = [_component(package, references) for package in packages]
    document = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": references[locked.PROJECT],
                "name": locked.PROJECT,
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": _dependencies(packages, references),
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(document, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"}
    return {**head, "version": 1, **document}


def write(folder: Path) -> None:
    """Write the document into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = build()
    path = folder / FILE_NAME
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{path}: {len(document['components'])} packages")


def _component(package: locked.Package, references: dict[str, str]) -> dict[str, str]:
    reference = references[package.name]
    return {
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
    }


def _dependencies(
    packages: list[locked.Package], references: dict[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "ref": reference,
            "dependsOn": sorted(
                references[package.name] for package in packages if name in package.required_by
            ),
        }
        for name, reference in sorted(references.items())
    ]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
