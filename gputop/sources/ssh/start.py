"""Asks /bin/sh on another machine what it has, and runs the best of it, over one connection.

The script goes to the login shell as one word in single quotes. It has no quote, backslash,
exclamation mark or line end in it, and so is the same to sh, csh and fish. It prints

    gputop-start
    gputop PROTOCOLS PATH           an installed one; PROTOCOLS is empty for one that is too old
    python PATH MINOR [_bz2]
    nvidia-smi PATH
    gputop-ready

and then reads the choice, one line of its standard input:

    installed 0 OPTIONS...          run that gputop's agent
    carried BYTES OPTIONS...        run BYTES of Python that follow as zlib data
    shell BYTES                     run BYTES that follow as a text for /bin/sh

Whatever a login script prints before `gputop-start` is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gputop.errors import SourceError
from gputop.model.machine.text import printable
from gputop.protocol.versions import Versions, parse_versions
from gputop.sources.ssh.carry import Packer

OLDEST_PYTHON = 9
"""The minor version of the oldest Python 3 that an agent runs on."""
_PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9",
    "python", "$HOME/.venv/bin/python", "$HOME/venv/bin/python", "$HOME/.local/bin/python3",
    "$HOME/miniconda3/bin/python", "$HOME/miniforge3/bin/python", "$HOME/anaconda3/bin/python",
    "/opt/conda/bin/python", "/usr/libexec/platform-python",
)  # fmt: skip
"""Where to look for a Python, in this order; the first that is new enough is taken."""
_GPUTOPS = "gputop", "$HOME/.local/bin/gputop", "$HOME/.venv/bin/gputop"
_ASK_PYTHON = (
    "import sys,zlib,ctypes;from importlib.util import find_spec;v=sys.version_info;"
    "print(v[1],*filter(find_spec,sys.argv[1:]));sys.exit(v<(3,9))"
)
_RUN_PYTHON = "import sys,zlib;exec(zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1]))))"
_SHELL = """\
echo gputop-start;
for g in {gputops}; do
 if command -v "$g" >/dev/null 2>&1; then
  v=$("$g" agent --spoken </dev/null 2>/dev/null); echo "gputop $v $g"; break; fi; done;
for p in {pythons}; do
 if command -v "$p" >/dev/null 2>&1; then
  if v=$("$p" -I -S -c "{ask}" _bz2 </dev/null 2>/dev/null);
  then echo "python $p $v"; break; else echo "python $p $v"; fi; fi; done;
n=$(command -v nvidia-smi) && echo "nvidia-smi $n";
echo gputop-ready;
read -r how n rest;
case $how in
 installed) exec "$g" agent $rest;;
 carried) exec "$p" -I -B -S -c "{run}" "$n" $rest;;
 shell) exec /bin/sh -c "$(dd bs=1 count="$n" 2>/dev/null)";;
esac"""
_MOST_LINES = 200
"""Lines of the output, including those of a login script."""
_MOST_BYTES = 1 << 14
"""Bytes of a line."""


class RemotePython(NamedTuple):
    """A Python on another machine."""

    path: str
    """Its path, as the shell there found it; harmless text."""
    minor: int
    """The MINOR of Python 3.MINOR."""
    packer: Packer
    """The better of the two that it has: a Python may be built without bz2."""


class Remote(NamedTuple):
    """What another machine has to read its GPUs with."""

    gputop: str | None = None
    """The path of an installed gputop; like all paths here, harmless text."""
    spoken: Versions | None = None
    """The versions of the protocol that it speaks; None if it does not say."""
    python: RemotePython | None = None
    """The first Python that is new enough."""
    old_pythons: tuple[str, ...] = ()
    """Paths of older ones that were tried before."""
    nvidia_smi: str | None = None


def remote_command() -> str:
    """Return the command that ssh runs there."""
    text = _SHELL.format(
        gputops=" ".join(f'"{path}"' for path in _GPUTOPS),
        pythons=" ".join(f'"{path}"' for path in _PYTHONS),
        ask=_ASK_PYTHON,
        run=_RUN_PYTHON,
    )
    return f"exec /bin/sh -c '{text.replace(chr(10), '')}'"


def read_remote(line: Callable[[int], bytes]) -> Remote | None:
    """Read the script's output by `line`, which takes the most bytes of a line. None if the output
    ends early. SourceError if it is not the script's."""
    remote, has_begun = Remote(), False
    for _ in range(_MOST_LINES):
        data = line(_MOST_BYTES)
        if not data.endswith(b"\n"):
            return None
        words = printable(data.decode("utf-8", "replace").strip(), 1000).split()
        if words == ["gputop-ready"]:
            return remote
        if has_begun and words:
            remote = _learn(remote, words[0], words[1:])
        has_begun = has_begun or words == ["gputop-start"]
    raise SourceError("the host did not answer as a shell does: try ssh by hand")


def _learn(remote: Remote, kind: str, words: list[str]) -> Remote:
    if kind == "gputop":
        return remote._replace(gputop=words[-1] if words else None, spoken=_versions(words[:-1]))
    if kind == "nvidia-smi":
        return remote._replace(nvidia_smi=" ".join(words))
    if kind == "python" and words:
        python = _python(words)
        if python is None:
            return remote._replace(old_pythons=(*remote.old_pythons, words[0]))
        return remote._replace(python=python)
    return remote


def _versions(words: list[str]) -> Versions | None:
    try:
        return parse_versions(words[0])
    except (IndexError, ValueError):
        return None


def _python(words: list[str]) -> RemotePython | None:
    """Return the Python that was tried, if it runs and is new enough."""
    path, minor, *packers = [*words, ""]
    if not (minor.isascii() and minor.isdecimal() and int(minor) >= OLDEST_PYTHON):
        return None
    return RemotePython(path, int(minor), "bz2" if "_bz2" in packers else "zlib")
