"""What `gputop doctor` says of several machines: what most have, and who differs in what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.model.machine.finding import Finding, worst_first


class Comparison(NamedTuple):
    """The checks of several machines, each said once."""

    common: list[Finding]
    """What more than half of them have."""
    differences: dict[Finding, list[str]]
    """What the others have, or have not, and the names of these machines; the worst first."""


def compare(checks: Mapping[str, Sequence[Finding]]) -> Comparison:
    """Compare machines by their checks. One that lacks what most have differs, too."""
    hosts: dict[Finding, list[str]] = {}
    for host, listed in checks.items():
        for check in dict.fromkeys(listed):
            hosts.setdefault(check, []).append(host)
    codes = list(dict.fromkeys(check.code for check in hosts))
    ordered = sorted(hosts, key=lambda check: codes.index(check.code))
    common = [check for check in ordered if 2 * len(hosts[check]) > len(checks)]
    differences = {check: hosts[check] for check in ordered if check not in common}
    for host, listed in checks.items():
        if (lack := _lack(common, listed)) is not None:
            differences.setdefault(lack, []).append(host)
    return Comparison(common, {check: differences[check] for check in worst_first(differences)})


def _lack(common: Iterable[Finding], checks: Sequence[Finding]) -> Finding | None:
    """Return which common checks a machine has nothing else in place of; None if there are none."""
    own = {check.code for check in checks if check not in common}
    some = {check.code for check in checks}
    lacks = [
        f"{check.code} {check.text}" if check.code in some else check.code
        for check in common
        if check not in checks and check.code not in own
    ]
    return Finding("info", "not there", ", ".join(dict.fromkeys(lacks))) if lacks else None
