"""Explains which of three ways a machine is read in, and why, for `gputop doctor -H HOST`."""

from __future__ import annotations

from gputop.model.fleet.link import LinkKind
from gputop.model.machine.finding import Finding
from gputop.protocol.versions import SPOKEN
from gputop.sources.ssh.carry import fitting
from gputop.sources.ssh.start import Remote

CONNECTION = "connection"
"""The code of the finding."""


def ways_check(how: LinkKind, remote: Remote) -> Finding:
    """Return the check of a machine that is read in one way; `remote` is what there is."""
    if how == "installed":
        text = f"the gputop that is installed there answers ({remote.gputop})"
        return Finding("ok", CONNECTION, text).harmless()
    if how == "carried":
        return Finding("ok", CONNECTION, f"{_gputop(remote)}: {_carried(remote)}").harmless()
    text = (
        f"{_gputop(remote)}, and {_pythons(remote)}: only nvidia-smi and /proc are read, so fewer "
        "values, and no signals, mapping or details"
    )
    return Finding("warning", CONNECTION, text, "install gputop or Python 3.10 there").harmless()


def _gputop(remote: Remote) -> str:
    if remote.gputop is None:
        return "gputop is not installed there"
    if remote.spoken is None:
        return f"the gputop there is too old ({remote.gputop})"
    return f"the gputop there speaks protocol {remote.spoken}, this one {SPOKEN} ({remote.gputop})"


def _carried(remote: Remote) -> str:
    python = remote.python
    if python is None:
        return "its agent is carried over ssh"
    text = (
        f"the agent is carried over ssh and runs in the memory of Python 3.{python.minor} "
        f"({python.path}); nothing is written there, signals are in no log there"
    )
    if fitting(python) is None:
        text += (
            f"; msgspec's compiled part does not fit that Python ({python.machine}), plain Python "
            "takes its place: the same values, more CPU time"
        )
    return text


def _pythons(remote: Remote) -> str:
    if not remote.old_pythons:
        return "no Python is found there"
    return f"no Python there is 3.10 or newer ({', '.join(remote.old_pythons)})"
