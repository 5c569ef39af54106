"""Python versions with a vulnerability that a request can exploit."""

import sys

#: The first release of each series with the fix for CVE-2024-7592.
_FIXED = {(3, 11): 10, (3, 12): 6}


def interpreter_doubts(version: tuple[int, int, int] = sys.version_info[:3]) -> list[str]:
    series, release = (version[0], version[1]), version[2]
    if release >= _FIXED.get(series, 0):
        return []
    number = ".".join(map(str, version))
    fault = "parses hostile cookies in quadratic time (CVE-2024-7592)"
    fixed = f"{series[0]}.{series[1]}.{_FIXED[series]}"
    return [f"Python {number} {fault}: upgrade to {fixed} or later"]
