"""Simulate an old browser by removing features that a supported browser lacks."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.node import SETTINGS, node

_TAKE_OUT = """(() => {
  for (const { owner, name, isStatic } of LACKING) {
    const object = owner.split(".").reduce((parent, key) => parent?.[key], globalThis);
    const holder = owner === "Window" ? globalThis : isStatic ? object : object?.prototype;
    if (!name) delete globalThis[owner];
    else if (holder) delete holder[name];
  }
  const { addEventListener } = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function (type, listener, options) {
    const { signal, ...rest } = Object(options); // Chrome 87 ignores it
    const known = typeof options === "object" ? rest : options;
    return addEventListener.call(this, type, listener, known);
  };
})()"""


@cache
def script() -> str:
    """Return a script that must run before a page's scripts."""
    command = [node(), SETTINGS / "browsers.mjs", Path(sys.prefix) / "web"]
    lacking = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {"owner": "AbortSignal", "name": "timeout"}.items() <= next(
        load for load in json.loads(lacking) if load["name"] == "timeout" and load["isStatic"]
    ).items()
    return _TAKE_OUT.replace("LACKING", lacking)
