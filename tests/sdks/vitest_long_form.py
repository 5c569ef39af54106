"""Run the example tests of the TypeScript SDK with vitest.

This test is not part of `make test-all`, because vitest has 60 packages.
"""

import asyncio
import shutil

from payintent_sandbox.chains.anvil_binary import npm
from tests.sdks import typescript_sdk
from tests.sdks.conftest import Side
from tests.sdks.test_fixtures import read_example
from tools.openapi.pack_typescript import PROJECT
from tools.vitest.install import FOLDER

_NODE_IMPORT = 'import { after, test } from "node:test";'
_VITEST_IMPORT = 'import { afterAll as after, test } from "vitest";'
_WORDS = ("run", "--reporter=tap-flat", "--no-cache")


async def test_the_example_runs_with_vitest_and_the_import_in_the_readme(
    side: Side,
) -> None:
    assert _VITEST_IMPORT in (PROJECT / "README.md").read_text()
    program = read_example(PROJECT, "typescript")
    assert _NODE_IMPORT in program
    folder = typescript_sdk.install_sdk()
    shutil.copytree(FOLDER / "node_modules", folder / "node_modules", dirs_exist_ok=True)
    (folder / "shop.test.ts").write_text(program.replace(_NODE_IMPORT, _VITEST_IMPORT))
    vitest = str(folder / "node_modules" / "vitest" / "vitest.mjs")
    command = (npm()[0], vitest, *_WORDS)
    printed = await asyncio.to_thread(typescript_sdk.run, *command, folder=folder, **side)
    assert [line[:5] for line in printed.splitlines()[2:]] == ["ok 1 ", "ok 2 ", "ok 3 "], printed
