"""Put the tree and the `payintent` command into the virtual environment that runs this file."""

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = f"""#!{sys.executable}
from payintent.cli import main

main()
"""


def main() -> None:
    """Write a path file and the command: an editable install without a build step."""
    Path(sysconfig.get_path("purelib"), "payintent.pth").write_text(f"{ROOT}\n")
    command = Path(sysconfig.get_path("scripts"), "payintent")
    command.write_text(COMMAND)
    command.chmod(0o755)


main()
