"""Write the browser SDK's npm package without network access: `python -m tools.web.pack FOLDER`."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from payintent.checkout.static_files import build_wallet_script
from payintent_sandbox.chains.anvil_binary import npm, npm_environment

SDK = Path(__file__).parent.parent.parent / "payintent" / "checkout" / "sdk"
TIMEOUT_S = 120.0


def pack(folder: Path) -> Path:
    """Write the package into a folder, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [*npm(), "pack", "--offline", "--ignore-scripts", "--pack-destination"]
    with TemporaryDirectory() as temporary:
        source = Path(shutil.copytree(SDK, temporary, dirs_exist_ok=True))
        (source / "v1.onchain.js").write_text(build_wallet_script())
        process = subprocess.run(  # noqa: S603
            [*command, str(folder.resolve())],
            cwd=source,
            env=npm_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if process.returncode != 0:
        raise SystemExit(f"the package cannot be built: {process.stderr}")
    return folder / process.stdout.split()[-1]


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))  # noqa: T201
