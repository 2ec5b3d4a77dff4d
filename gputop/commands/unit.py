"""A unit for systemd that records."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace

_UNIT = """\
# What gputop record --unit printed. To have it done from now on:
#   gputop record --unit > ~/.config/systemd/user/gputop-record.service
#   systemctl --user enable --now gputop-record
#   loginctl enable-linger    (also while nobody is logged in)

[Unit]
Description=Record what happens on the GPUs (gputop)

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
KillMode=mixed
UMask=0077
Nice=10

[Install]
WantedBy=default.target
"""
_PLAIN = re.compile(r"[\w/.,:=@+-]+", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}


def unit(path: str, options: Namespace) -> str:
    """Return a unit that runs the gputop that runs now, with the same options."""
    words = [*_program(), "record", *_options(path, options)]
    return _UNIT.format(command=" ".join(map(quoted, words)))


def quoted(word: str) -> str:
    """Return a word of a command line as a unit has it: see systemd.service(5) and
    systemd.syntax(7)."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(_ESCAPES.get(letter) or _visible(letter) for letter in word) + '"'


def _visible(letter: str) -> str:
    """Return a letter, a control character as its bytes: a line of a unit ends with its line."""
    if letter.isprintable():
        return letter
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))


def _program() -> list[str]:
    """Return what runs this gputop, by absolute paths."""
    program = os.path.abspath(sys.argv[0])
    return [program] if os.access(program, os.X_OK) else [sys.executable, program]


def _options(path: str, options: Namespace) -> list[str]:
    """Return words that say the same wherever systemd starts it: groups of hosts are spelt out."""
    folder = path.endswith("/")
    words = [
        os.path.abspath(path) + "/" * folder,
        f"--every={options.every:g}s",
        f"--keep={options.keep / 86400:g}d",
        f"--max-size={options.max_size:.0f}",
        f"--commands={options.commands}",
    ]
    words += [f"--host={host.asked}" for host in options.hosts]
    return [*words, "--demo"] if options.demo else words
