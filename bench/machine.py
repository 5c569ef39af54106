"""Describe a run's machine and Python. Figures from different machines are not comparable."""

import hashlib
import os
import platform
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

_TRIES = 5
_ADDITIONS = 300_000
_HASHED = bytes(8 << 20)


def describe_machine() -> str:
    """Describe the cores, system, Python build and current single-core speed on one line."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores of {cpu_name()}, {platform.system()} {platform.release()}; "
        f"{describe_python()}; {describe_speed()}"
    )


def print_machine(console: Console) -> None:
    """Print the machine's description below the results of a run."""
    console.print(describe_machine(), highlight=False, soft_wrap=True)


def describe_python() -> str:
    """Return the interpreter's version and optimisations."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    pgo = "PGO" if "--enable-optimizations" in configured else "no PGO"
    lto = "LTO" if "--with-lto" in configured else "no LTO"
    return f"Python {platform.python_version()} ({pgo}, {lto}, {platform.python_compiler()})"


def describe_speed() -> str:
    """Measure the speed of a core, with work in Python and with work outside the interpreter."""
    additions = _ADDITIONS / _least_s(_add) / 1e6
    hashed = len(_HASHED) / _least_s(lambda: hashlib.sha256(_HASHED)) / 1e6
    return f"one core: {additions:.0f} million additions/s in Python, SHA-256 {hashed:,.0f} MB/s"


def cpu_name() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _add() -> None:
    total = 0
    for number in range(_ADDITIONS):
        total += number


def _least_s(work: Callable[[], object]) -> float:
    """Return the CPU time of the fastest of several runs."""
    seconds: list[float] = []
    for _ in range(_TRIES):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)
