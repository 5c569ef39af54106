"""The clients that openapi-generator generates for Java and Python.

They are not part of `make test-all`, because they take minutes, and Maven fetches dependencies.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import yaml

from tests.clients.expected_results import check_what_was_done
from tests.clients.generate import HERE, basedpyright, run
from tests.clients.maven_lock import check_fetched
from tests.support.tools import java
from tools.openapi.check import CONTRACT
from tools.openapi.install import CLIENTS_LONG

_PYTHON = str(CLIENTS_LONG / "bin" / "python")
_FETCHED = CLIENTS_LONG / "maven"
_MAVEN = ("mvn", "-B", "-q", f"-Dmaven.repo.local={_FETCHED}", "-Dmaven.test.skip")

_MAVEN_TIMEOUT_S = 1_200  # the first run fetches about 40 MB


def _generated(*options: str) -> Path:
    """Run openapi-generator on the contract; return the folder of the generated files.

    For each operation, the generator uses only the response with the lowest success status. The
    denial of a create request has status 200 and is therefore removed. Otherwise, the clients would
    parse every response to a create request as a denial.
    """
    folder = Path(mkdtemp(prefix="payintent-client-"))
    document = yaml.safe_load(CONTRACT.read_text())
    del document["paths"]["/v1/payments"]["post"]["responses"]["200"]
    (folder / "openapi.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    [jar] = CLIENTS_LONG.glob("lib/python*/site-packages/openapi_generator_cli/*.jar")
    run(java(), "-jar", str(jar), "generate", "-i", "openapi.yaml", "-o", ".", *options,
        folder=folder)  # fmt: skip
    return folder


@cache
def _python_client() -> Path:
    folder = _generated("-g", "python", "--package-name", "payintent_client")
    shutil.copy(HERE / "use_openapi_generator.py", folder)
    checked = {
        "include": ["use_openapi_generator.py"],
        "typeCheckingMode": "standard",
        "strict": ["use_openapi_generator.py"],
        "reportMissingTypeStubs": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(checked))
    return folder


@cache
def _java_client() -> tuple[Path, str]:
    """Compile the client with the program that uses it; return the folder and the class path.

    Fetched artifacts are compared with the list before Maven runs them, and newly fetched artifacts
    before the client runs. Only a first run trusts the registry while the compiler runs.
    """
    package = "payintent.client"
    options = f"invokerPackage={package},apiPackage={package}.api,modelPackage={package}.model"
    folder = _generated("-g", "java", "--library", "native", f"--additional-properties={options}")
    shutil.copy(HERE / "UseOpenapiGenerator.java", folder / "src" / "main" / "java")
    check_fetched(_FETCHED)
    run(*_MAVEN, "-Dmdep.outputFile=classpath", "compile", "dependency:build-classpath",
        folder=folder, timeout_s=_MAVEN_TIMEOUT_S)  # fmt: skip
    check_fetched(_FETCHED)
    return folder, f"target/classes:{(folder / 'classpath').read_text().strip()}"


def _use_python(uses: list[str]) -> str:
    return run(_PYTHON, "use_openapi_generator.py", *uses, folder=_python_client())


def _use_java(uses: list[str]) -> str:
    folder, class_path = _java_client()
    return run(java(), "-cp", class_path, "UseOpenapiGenerator", *uses, folder=folder)


@pytest.mark.parametrize("use", [_use_python, _use_java])
async def test_a_client_from_openapi_generator_covers_every_merchant_task(
    uses: list[str], use: Callable[[list[str]], str]
) -> None:
    output = await asyncio.to_thread(use, uses)
    print(output)  # useful in a manual run
    check_what_was_done(json.loads(output))


def test_the_python_client_from_openapi_generator_type_checks() -> None:
    print(run(basedpyright(), "--level", "error", "--pythonpath", _PYTHON, folder=_python_client()))
