"""What the units for systemd of `gputop record` and `gputop export` run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

_PLAIN_WORD = re.compile(r"[\w/.,:=@+-]+", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}


def unit_command(words: Iterable[str]) -> str:
    """Return the command line of a unit that runs this same gputop with other arguments."""
    program = os.path.abspath(sys.argv[0])
    runs = [program] if os.access(program, os.X_OK) else [sys.executable, program]
    return " ".join(map(quoted, [*runs, *words]))


def quoted(word: str) -> str:
    """Return a word of a command line quoted for a unit: see systemd.service(5) and
    systemd.syntax(7)."""
    if _PLAIN_WORD.fullmatch(word):
        return word
    return '"' + "".join(_ESCAPES.get(letter) or _visible(letter) for letter in word) + '"'


def _visible(letter: str) -> str:
    """Return a letter, but a control character as its bytes: a line break would end the line."""
    if letter.isprintable():
        return letter
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
