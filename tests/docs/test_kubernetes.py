"""The Helm chart and its page use names that exist in the service.

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
from tests.docs.command_line import check_command
from tests.docs.nginx import parse
from tests.docs.parse_pages import ROOT, examples, page
from tools.chart import CHART, FULL, findings

_TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
_ALL = "\n".join(_TEMPLATES.values())
_VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
_SCHEMA = json.loads((CHART / "values.schema.json").read_text())
_PAGE = page("docs/operate/kubernetes.md")
_DIGEST = f"sha256:{64 * 'a'}"
_BASES = ("PAYINTENT_API_BASE", "PAYINTENT_CHECKOUT_BASE")
_REQUIRED = {
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


def _merge(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge values as Helm merges value files."""
    nested = {
        name: _merge(values[name], over[name])
        for name in values.keys() & over.keys()
        if isinstance(values[name], dict) and isinstance(over[name], dict)
    }
    return {**values, **over, **nested}


def _refusals(over: dict[str, Any]) -> list[str]:
    Draft7Validator.check_schema(_SCHEMA)
    errors = Draft7Validator(_SCHEMA).iter_errors(_merge(_VALUES, over))
    return [error.json_path for error in errors]


def test_the_schema_accepts_the_values_on_the_page_and_in_the_check() -> None:
    [example] = examples(_PAGE, "yaml", "values")
    assert _refusals(yaml.safe_load(example)) == []
    assert _refusals(yaml.safe_load(FULL.read_text())) == []
    assert _refusals(_REQUIRED) == []


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
def test_the_schema_refuses_secrets_tags_and_missing_values(
    changes: dict[str, Any], path: str
) -> None:
    assert path in _refusals(_merge(_REQUIRED, changes))


def test_pods_can_listen_on_ipv6_addresses_because_kubernetes_probes_them_there() -> None:
    assert _refusals({**_REQUIRED, "listenAddress": "::"}) == []
    listening = re.findall(r'-host, "(.*?)"', _ALL)
    assert listening == ["{{ .Values.listenAddress }}"] * 3


def test_the_defaults_alone_are_refused_because_they_are_incomplete() -> None:
    expected = {"$.existingSecret", "$.image.repository", "$.image.digest", "$.settings"}
    assert set(_refusals({})) == expected


@pytest.mark.parametrize("name", _BASES)
def test_a_missing_base_url_is_refused(name: str) -> None:
    settings = {key: value for key, value in _REQUIRED["settings"].items() if key != name}
    assert _refusals({**_REQUIRED, "settings": settings}) == ["$.settings"]


def test_every_setting_in_the_chart_exists() -> None:
    existing = {make_variable_name(name) for name in Settings.model_fields}
    files = [CHART / "values.yaml", FULL]
    names = set(re.findall(r"PAYINTENT_[A-Z_]*[A-Z]|DATABASE_URL", _ALL))
    for file in files:
        names |= set(re.findall(r"PAYINTENT_[A-Z_]*[A-Z]|DATABASE_URL", file.read_text()))
    assert "PAYINTENT_DRAIN_S" in names
    assert names <= existing
    for name, value in _VALUES["settings"].items():
        field = name.removeprefix("PAYINTENT_").lower()
        fields = {"database_url": "postgresql://x", "pepper": "x", "keyring": "x", field: value}
        assert Settings(**fields, _env_file=None)


def test_every_value_and_every_definition_that_a_template_uses_exists() -> None:
    for path in re.findall(r"\.Values\.([A-Za-z.]+)", _ALL):
        node: Any = _VALUES
        for name in path.split("."):
            assert name in node, path
            node = node[name]
    defined = re.findall(r'define "([\w.]+)"', _ALL)
    assert set(defined) == set(re.findall(r'include "([\w.]+)"', _ALL))
    assert len(defined) == len(set(defined))
    for name, text in _TEMPLATES.items():
        assert text.count("{{") == text.count("}}"), name
        openings = re.findall(r"{{-? (?:if|with|range|define) ", text)
        assert len(openings) == len(re.findall(r"{{-? end -?}}", text)), name


@pytest.mark.parametrize("process", ["api", "worker", "migrate"])
def test_every_pod_runs_a_command_of_the_service(process: str) -> None:
    assert check_command(_arguments(process)) == process


def _arguments(process: str) -> list[str]:
    text = _TEMPLATES[f"{process}.yaml"]
    [arguments] = re.findall(r"^ +args:(.*(?:\n +(?:- .*|{{-.*}}))*)", text, re.MULTILINE)
    plain = re.sub(r"^ *{{-.*}}$", "", arguments, flags=re.MULTILINE)
    words = yaml.safe_load(re.sub(r"{{ .*? }}", "1", plain))
    grants = str(ROOT / "deploy" / "database" / "grants.sql")
    return [word.replace("/etc/payintent/grants/grants.sql", grants) for word in words]


def test_every_pod_is_hardened_and_receives_no_service_variables() -> None:
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


def test_a_worker_has_enough_temporary_space_for_the_files_that_it_copies() -> None:
    assert 'include "payintent.volumes"' in _TEMPLATES["worker.yaml"]
    helpers = _TEMPLATES["_helpers.tpl"]
    assert "- {name: tmp, mountPath: /tmp}" in helpers
    [room_gib] = re.findall(r"- name: tmp\n +emptyDir: {sizeLimit: (\d+)Gi}", helpers)
    assert int(room_gib) * 1024**3 > _FILE_BYTES_MAX


def test_the_grace_period_of_a_pod_exceeds_the_stop_time_of_a_process() -> None:
    allowed = _SCHEMA["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert _VALUES["terminationGracePeriodSeconds"] >= allowed > _STOP_WAIT_S
    assert float(_VALUES["settings"]["PAYINTENT_DRAIN_S"]) < _STOP_WAIT_S
    assert "terminationGracePeriodSeconds" in _TEMPLATES["_helpers.tpl"]


def test_the_ingress_publishes_the_same_paths_as_the_proxy() -> None:
    server = parse(page("deploy/nginx.conf")).inner("server")[-1]
    public = [item for item in server.inner("location") if item.all("proxy_pass")]
    expected = {f"/{item.words[-1].lstrip('^/').split('/')[0]}" for item in public}
    [paths] = re.findall(r"range list ((?:\"[^\"]+\" ?)+)", _TEMPLATES["ingress.yaml"])
    assert set(re.findall(r'"([^"]+)"', paths)) == expected


def test_the_chart_has_the_version_and_the_grants_of_the_service() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]
    semantic = re.sub(r"(\d)rc(\d+)$", r"\1-rc.\2", version)  # Helm needs semantic versions
    assert (chart["version"], chart["appVersion"]) == (semantic, version)
    grants = CHART / "files" / "grants.sql"
    assert grants.read_text() == page("deploy/database/grants.sql")


def test_insecure_settings_of_a_rendered_pod_are_reported() -> None:
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
        [finding] = findings(_HARDENED.replace(right, wrong))
        assert problem in finding
    [finding] = findings("kind: Secret\nmetadata: {name: made-up}")
    assert finding == "Secret made-up contains a secret"


def _check(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.chart"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_check_reports_that_it_rendered_nothing_if_helm_is_missing(tmp_path: Path) -> None:
    result = _check(tmp_path)
    assert result.returncode == 0
    assert "helm is not on PATH" in result.stdout
    assert "was not rendered" in result.stdout


def test_the_check_fails_if_helm_refuses_the_chart(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text(f"#!{shutil.which('sh')}\necho no such template\nexit 1\n")
    helm.chmod(helm.stat().st_mode | stat.S_IXUSR)
    result = _check(tmp_path, HELM=os.fspath(helm))
    assert result.returncode == 1
    assert "no such template" in result.stderr
