"""`python -m drills.ha` creates the hosts, runs the drill on one of them, and removes them."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from drills.ha import network
from drills.ha.faults import FAULTS
from drills.ha.network import APP, within
from drills.ha.patroni_venv import patroni_program
from drills.ha.programs import missing_packages

_STOP_S = 20


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills.ha")
    parser.add_argument("--runs", type=int, default=5, help="runs for each fault")
    parser.add_argument("--only", default="", help="fault names, separated by commas")
    parser.add_argument("--rate", type=float, default=40.0, help="requests per second")
    options = parser.parse_args()
    names = [fault.name for fault in FAULTS]
    wrong = [name for name in options.only.split(",") if name and name not in names]
    if wrong:
        parser.error(f"unknown faults: {', '.join(wrong)}; valid faults: {', '.join(names)}")
    return options


def _refuse_what_cannot_work() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        sys.exit("python -m drills.ha creates network namespaces: run it as root on Linux")
    missing = missing_packages()
    if missing:
        sys.exit(f"python -m drills.ha needs more packages: apt-get install {' '.join(missing)}")


def _run(command: list[str]) -> int:
    """Run the drill until it ends, or until this process receives SIGINT or SIGTERM."""
    running = subprocess.Popen(command, start_new_session=True)

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    signal.signal(signal.SIGTERM, stop)
    try:
        return running.wait()
    except KeyboardInterrupt:
        print("stopping", flush=True)
        running.send_signal(signal.SIGINT)
        try:
            running.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        return 130


def main() -> int:
    """Run the drill. Return 0 if nothing was lost, duplicated or missing."""
    options = _options()
    _refuse_what_cannot_work()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    patroni = patroni_program(var_dir)
    folder = Path(tempfile.mkdtemp(prefix="drill-ha-", dir=var_dir))
    folder.chmod(0o711)  # so that the databases' user can access the data
    try:
        with network.hosts():
            return _run([
                *within(APP), sys.executable, "-m", "drills.ha.run",
                *("--folder", str(folder), "--patroni", str(patroni)),
                *("--table", str(var_dir / "drill-ha.md")),
                *("--rate", str(options.rate), "--runs", str(options.runs)),
                *("--only", options.only),
            ])  # fmt: skip
    except network.HostsTakenError:
        sys.exit("another python -m drills.ha is running on this machine")
    finally:
        _keep_logs(folder, var_dir / "drill-ha-logs")
        shutil.rmtree(folder, ignore_errors=True)


def _keep_logs(folder: Path, target: Path) -> None:
    """Save the programs' logs, and delete the previous drill's logs."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for log in folder.glob("*.log"):
        shutil.copy(log, target)


if __name__ == "__main__":
    sys.exit(main())
