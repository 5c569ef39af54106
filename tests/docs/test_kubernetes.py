"""The Helm chart and its page: the names that they use exist in the service.

`python -m tools.chart` renders the chart. These tests read its files, and do not need Helm.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from payintent.http.server import _STOP_WAIT_S
from payintent.reconciliation.sources import _FILE_BYTES_MAX
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import make_variable_name
from tests.docs.command_line import take
from tests.docs.nginx import read
from tests.docs.reading import ROOT, examples, page
from tools.chart import CHART, FULL, findings

_TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
_ALL = "\n".join(_TEMPLATES.values())
_VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
_SCHEMA = json.loads((CHART / "values.schema.json").read_text())
_PAGE = page("docs/operate/kubernetes.md")
_DIGEST = f"sha256:{64 * 'a'}"
_BASES = ("PAYINTENT_API_BASE", "PAYINTENT_CHECKOUT_BASE")
_LEAST = {
    "image": {"repository": "r/payintent", "digest": _DIGEST},
    "existingSecret": "payintent",
    "settings": dict.fromkeys(_BASES, "https://pay.example.com"),
}
_HARDENED = """
kind: Deployment
metadata: {name: pay-api}
spec:
  template:
    spec:
      enableServiceLinks: false
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true}
      containers:
        - image: r/payintent@sha256:00
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          resources: {limits: {memory: 1Gi}}
"""


def _merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge values like Helm merges value files."""
    both = {
        name: _merged(values[name], over[name])
        for name in values.keys() & over.keys()
        if isinstance(values[name], dict) and isinstance(over[name], dict)
    }
    return {**values, **over, **both}


def _refusals(over: dict[str, Any]) -> list[str]:
    Draft7Validator.check_schema(_SCHEMA)
    found = Draft7Validator(_SCHEMA).iter_errors(_merged(_VALUES, over))
    return [error.json_path for error in found]


def test_the_schema_takes_the_values_that_the_page_and_the_check_have() -> None:
    [shown] = examples(_PAGE, "yaml", "values")
    assert _refusals(yaml.safe_load(shown)) == []
    assert _refusals(yaml.safe_load(FULL.read_text())) == []
    assert _refusals(_LEAST) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"existingSecret": ""}, "$.existingSecret"),
        ({"image": {"digest": "0.9.9"}}, "$.image.digest"),
        ({"image": {"tag": "latest"}}, "$.image"),
        ({"ingress": {"enabled": True}}, "$.ingress.tlsSecret"),
        ({"terminationGracePeriodSeconds": 10}, "$.terminationGracePeriodSeconds"),
        ({"replicas": 2}, "$"),
        ({"settings": {"LOG_LEVEL": "INFO"}}, "$.settings"),
        *(
            ({"settings": {name: "x"}}, "$.settings")
            for name, field in Settings.model_fields.items()
            if not field.repr or "SecretStr" in str(field.annotation) or name == "sandbox"
            for name in (f"PAYINTENT_{name.upper()}", make_variable_name(name))
        ),
        ({"settings": {"PAYINTENT_OPERATOR_TOKEN": "x"}}, "$.settings"),
    ],
    ids=str,
)
def test_the_schema_refuses_secrets_tags_and_what_is_missing(
    changes: dict[str, Any], path: str
) -> None:
    assert path in _refusals(_merged(_LEAST, changes))


def test_the_defaults_alone_are_refused_for_they_hold_no_image_no_secret_and_no_address() -> None:
    wanted = {"$.existingSecret", "$.image.repository", "$.image.digest", "$.settings"}
    assert set(_refusals({})) == wanted


@pytest.mark.parametrize("name", _BASES)
def test_an_address_that_the_values_lack_is_refused_and_not_made_up(name: str) -> None:
    settings = {other: value for other, value in _LEAST["settings"].items() if other != name}
    assert _refusals({**_LEAST, "settings": settings}) == ["$.settings"]


def test_every_setting_that_the_chart_names_is_a_setting() -> None:
    known = {make_variable_name(name) for name in Settings.model_fields}
    files = [CHART / "values.yaml", FULL]
    named = set(re.findall(r"PAYINTENT_[A-Z_]*[A-Z]|DATABASE_URL", _ALL))
    for file in files:
        named |= set(re.findall(r"PAYINTENT_[A-Z_]*[A-Z]|DATABASE_URL", file.read_text()))
    assert "PAYINTENT_DRAIN_S" in named
    assert named <= known
    for name, value in _VALUES["settings"].items():
        field = name.removeprefix("PAYINTENT_").lower()
        given = {"database_url": "postgresql://x", "pepper": "x", "keyring": "x", field: value}
        assert Settings(**given, _env_file=None)


def test_every_value_and_every_part_that_a_template_names_is_there() -> None:
    for path in re.findall(r"\.Values\.([A-Za-z.]+)", _ALL):
        found: Any = _VALUES
        for name in path.split("."):
            assert name in found, path
            found = found[name]
    defined = re.findall(r'define "([\w.]+)"', _ALL)
    assert set(defined) == set(re.findall(r'include "([\w.]+)"', _ALL))
    assert len(defined) == len(set(defined))
    for name, text in _TEMPLATES.items():
        assert text.count("{{") == text.count("}}"), name
        opened = re.findall(r"{{-? (?:if|with|range|define) ", text)
        assert len(opened) == len(re.findall(r"{{-? end -?}}", text)), name


@pytest.mark.parametrize("process", ["api", "worker", "migrate"])
def test_a_pod_starts_a_command_of_the_service(process: str) -> None:
    assert take(_arguments(process)) == process


def _arguments(process: str) -> list[str]:
    text = _TEMPLATES[f"{process}.yaml"]
    [given] = re.findall(r"^ +args:(.*(?:\n +(?:- .*|{{-.*}}))*)", text, re.MULTILINE)
    plain = re.sub(r"^ *{{-.*}}$", "", given, flags=re.MULTILINE)
    words = yaml.safe_load(re.sub(r"{{ .*? }}", "1", plain))
    here = str(ROOT / "deploy" / "database" / "grants.sql")
    return [word.replace("/etc/payintent/grants/grants.sql", here) for word in words]


def test_every_pod_is_hardened_and_takes_no_names_of_services_for_settings() -> None:
    for process in ("api", "worker", "migrate"):
        text = _TEMPLATES[f"{process}.yaml"]
        for part in ("podSecurity", "containerSecurity", "environment", "image", "mounts"):
            assert f'include "payintent.{part}"' in text, (process, part)
        assert f".Values.{process}.resources" in text
    helpers = _TEMPLATES["_helpers.tpl"]
    for line in (
        "enableServiceLinks: false",
        "automountServiceAccountToken: false",
        "runAsNonRoot: true",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "capabilities: {drop: [ALL]}",
        "seccompProfile: {type: RuntimeDefault}",
    ):
        assert line in helpers
    assert "kind: Secret" not in _ALL


def test_a_worker_has_room_for_the_files_that_it_copies_though_its_root_is_read_only() -> None:
    assert 'include "payintent.volumes"' in _TEMPLATES["worker.yaml"]
    helpers = _TEMPLATES["_helpers.tpl"]
    assert "- {name: tmp, mountPath: /tmp}" in helpers
    [room_gib] = re.findall(r"- name: tmp\n +emptyDir: {sizeLimit: (\d+)Gi}", helpers)
    assert int(room_gib) * 1024**3 > _FILE_BYTES_MAX


def test_a_pod_is_given_longer_to_end_than_the_process_takes() -> None:
    allowed = _SCHEMA["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert _VALUES["terminationGracePeriodSeconds"] >= allowed > _STOP_WAIT_S
    assert float(_VALUES["settings"]["PAYINTENT_DRAIN_S"]) < _STOP_WAIT_S
    assert "terminationGracePeriodSeconds" in _TEMPLATES["_helpers.tpl"]


def test_the_ingress_publishes_what_the_proxy_does() -> None:
    server = read(page("deploy/nginx.conf")).inner("server")[-1]
    public = [item for item in server.inner("location") if item.all("proxy_pass")]
    wanted = {f"/{item.words[-1].lstrip('^/').split('/')[0]}" for item in public}
    [listed] = re.findall(r"range list ((?:\"[^\"]+\" ?)+)", _TEMPLATES["ingress.yaml"])
    assert set(re.findall(r'"([^"]+)"', listed)) == wanted


def test_the_chart_has_the_version_and_the_grants_of_the_service() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]
    semantic = re.sub(r"(\d)rc(\d+)$", r"\1-rc.\2", version)  # Helm needs semantic versions
    assert (chart["version"], chart["appVersion"]) == (semantic, version)
    grants = CHART / "files" / "grants.sql"
    assert grants.read_text() == page("deploy/database/grants.sql")


def test_what_a_rendered_pod_must_not_be_is_found() -> None:
    assert list(findings(_HARDENED)) == []
    for right, wrong, problem in (
        ("enableServiceLinks: false", "enableServiceLinks: true", "receives service names"),
        ("automountServiceAccountToken: false", "x: 1", "receives a cluster token"),
        ("runAsNonRoot: true", "runAsNonRoot: false", "may run as root"),
        ("@sha256:00", ":0.9.9", "an image without a digest"),
        ("allowPrivilegeEscalation: false", "x: 1", "allows privilege escalation"),
        ("readOnlyRootFilesystem: true", "x: 1", "has a writable root file system"),
        ("drop: [ALL]", "add: [ALL]", "has capabilities"),
        ("memory: 1Gi", "cpu: 1", "no memory limit"),
    ):
        [found] = findings(_HARDENED.replace(right, wrong))
        assert problem in found
    [found] = findings("kind: Secret\nmetadata: {name: made-up}")
    assert found == "Secret made-up contains a secret"


def _check(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.chart"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_helm_the_check_says_what_it_did_not_do(tmp_path: Path) -> None:
    done = _check(tmp_path)
    assert done.returncode == 0
    assert "helm is not on PATH" in done.stdout
    assert "was not rendered" in done.stdout


def test_a_chart_that_helm_refuses_fails_the_check(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text(f"#!{shutil.which('sh')}\necho no such template\nexit 1\n")
    helm.chmod(helm.stat().st_mode | stat.S_IXUSR)
    done = _check(tmp_path, HELM=os.fspath(helm))
    assert done.returncode == 1
    assert "no such template" in done.stderr
