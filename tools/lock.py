"""Write requirements/*.txt, with every package pinned and hashed, and without an index URL."""

import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copyfile

ROOT = Path(__file__).resolve().parent.parent
#: The two projects depend on each other and are not in a package index.
SANDBOX = ["payintent_sandbox/pyproject.toml", "--no-emit-package", "payintent"]
FILES = {
    "dev.txt": ["pyproject.toml", *SANDBOX, "--extra", "otel", "--group", "dev"],
    "run.txt": ["pyproject.toml"],
    "otel.txt": ["pyproject.toml", "--extra", "otel"],  # tracing, in addition to run.txt
    "sandbox.txt": SANDBOX,
    "build.txt": ["-"],  # builds the wheel; read from standard input
    "clients.txt": ["-"],  # generates Python clients; needs an older typer
    "mcp.txt": ["-"],  # the agent server and its SDK
    "clients-long.txt": ["-"],  # openapi-generator and the dependencies of its Python client
    "profile.txt": ["-"],  # py-spy, for `python -m bench.profile`
    "kubernetes.txt": ["-"],  # Kubernetes schemas, for `python -m tools.chart`
    "ha.txt": ["-"],  # Patroni, for `python -m drills.ha`; setuptools builds two of its packages
    "../examples/django/requirements.txt": ["-"],
    "../examples/fastapi/requirements.txt": ["-"],
    "../examples/flask/requirements.txt": ["-"],
}
#: These sets are parts of `dev.txt` and use its versions, so that installing one of them does not
#: replace packages of another set.
SUBSETS = ("run.txt", "otel.txt", "sandbox.txt")
CLIENTS = ["openapi-python-client>=0.29,<0.30", "gunicorn>=23"]
CLIENTS_LONG = [
    "openapi-generator-cli==7.26.0",
    *("pydantic>=2.11,<3", "python-dateutil>=2.8.2", "typing-extensions>=4.7.1", "urllib3>=2.7,<3"),
]
MCP = ["mcp>=2.3,<3", "httpx>=0.27,<1"]
PROFILE = "py-spy>=0.4.3,<0.5"
KUBERNETES = "kubernetes-validate>=1.37,<2"
HA = ["patroni[etcd3]>=4.1,<5", "psycopg[binary]>=3.3,<4", "setuptools>=80"]
#: Dependencies of each example in addition to `sdks/python`, which needs httpx.
EXAMPLES = {
    "django": ["django>=5.2,<6", "httpx>=0.27,<1"],
    "fastapi": ["fastapi>=0.165,<0.166", "uvicorn>=0.54,<1", "httpx>=0.27,<1"],
    "flask": ["flask>=3.1,<4", "gunicorn>=23", "httpx>=0.27,<1"],
}
COMPILE = [
    *(sys.executable, "-m", "uv", "pip", "compile", "--universal"),
    *("--python-version", "3.11", "--generate-hashes", "--no-header", "--quiet"),
]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    typed = {
        "build.txt": "\n".join(project["build-system"]["requires"]),
        "clients.txt": "\n".join(CLIENTS),
        "mcp.txt": "\n".join(MCP),
        "clients-long.txt": "\n".join(CLIENTS_LONG),
        "profile.txt": PROFILE,
        "kubernetes.txt": KUBERNETES,
        "ha.txt": "\n".join(HA),
        **{f"../examples/{name}/requirements.txt": "\n".join(EXAMPLES[name]) for name in EXAMPLES},
    }
    for name, source in FILES.items():
        output = ROOT / "requirements" / name
        command = [*COMPILE, *source, "-o", str(output)]
        if name in SUBSETS:
            copyfile(ROOT / "requirements" / "dev.txt", output)  # uv keeps its versions
        else:
            command.append("--upgrade")
        subprocess.run(command, cwd=ROOT, input=typed.get(name), text=True, check=True)  # noqa: S603


if __name__ == "__main__":
    main()
