"""gputop on a simulated machine in a real terminal, and what is asked of both."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputop.tui.terminal.background import QUERY
from tests.driver import Machine
from tests.terminal import Terminal

GPUTOP = [sys.executable, "-m", "gputop"]
HELP = "? help"
SIZES = [(200, 50), (80, 24)]
CONTROL = re.compile(
    rb"\x1b(?:"
    rb"\[[0-9;]*[HABCDGP@XmJK]"  # moves, erasures, colours
    rb"|\[\?(?:25|7|100[046]|1049|2004|2026)[hl]"  # cursor, wrapping, focus, screen, paste, sync
    rb"|\[\?2026\$p|\[>[0-9]*u|\[<u|\[\?u|\[=[0-9;]*u|\[c|\[\?2048[hl]|\[\?2048\$p"
    rb"|[78]|\[6n|\\|\]22;[a-z]+\x07"  # the last one: the shape of the mouse pointer
    rb")"
)
"""What gputop and Textual send besides text."""
UNSEEN = re.compile(
    "[\x00-\x07\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


@contextmanager
def running(
    machine: Machine,
    *arguments: str,
    size: tuple[int, int] = (80, 24),
    env: Mapping[str, str | None] | None = None,
    wait: str | None = HELP,
    argv: list[str] | None = None,
    background: str = "",
) -> Iterator[Terminal]:
    """gputop on the machine, when it shows `wait`; killed at the end. `background`: what the
    terminal says its own is."""
    unset = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "COLUMNS", "LINES"))
    merged: dict[str, str | None] = {**machine.env, **unset, **(env or {})}
    with Terminal(
        [*(argv or GPUTOP), *arguments],
        cols=size[0], rows=size[1], env=merged, background=background,
    ) as terminal:  # fmt: skip
        if wait is not None:
            terminal.wait_for(wait)
            terminal.wait_for(lambda: "waiting for the driver" not in terminal.text)
        yield terminal


def agents(terminal: Terminal) -> list[int]:
    """The agents of a gputop, which are its children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == terminal.process.pid:
            found.append(int(path.parent.name))
    return found


def gone(pid: int, timeout: float = 10) -> bool:
    """Whether a process ends in time (a zombie has)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True

    try:
        return bool(select.select([descriptor], [], [], timeout)[0])
    finally:
        os.close(descriptor)


def has_ended(terminal: Terminal, name: str, before: str = "", after: str = "") -> bool:
    """Whether the dialog says that a signal of that name ended it: on a busy machine that takes
    more than the tenth of a second that is at once."""
    words = " ".join(terminal.text.replace("│", " ").split())
    pattern = rf"{re.escape(before)}ended (?:at once|\d\.\d s) after {name}{re.escape(after)}"
    return re.search(pattern, words) is not None


def switched(raw: bytes | bytearray) -> set[int]:
    """The private modes that are not as a terminal has them at first."""
    last = {int(mode): on == b"h" for mode, on in re.findall(rb"\x1b\[\?(\d+)([hl])", raw)}
    return {mode for mode, on in last.items() if on != (mode in (7, 25))}


def restored(terminal: Terminal) -> bool:
    """Whether the terminal is as it was."""
    raw = terminal.raw
    return (
        terminal.modes == terminal.initial_modes
        and not switched(raw)
        and raw.rindex(b"\x1b[?1049l") > raw.rindex(b"\x1b[?1049h")
        and raw.rindex(b"\x1b[?25h") > raw.rindex(b"\x1b[?25l")
    )


def strange(raw: bytes) -> list[bytes]:
    """What of the output is neither text nor a sequence that gputop sends."""
    # Once, the question for the background: no process can write it, as its text has no escapes.
    rest = CONTROL.sub(b"", raw.replace(QUERY.encode(), b"", 1))
    found = [rest[max(0, m.start() - 5) : m.end() + 20] for m in re.finditer(rb"\x1b", rest)]
    text = rest.decode("utf-8", "backslashreplace").replace("\r", "").replace("\n", "")
    return [*found, *(m[0].encode() for m in UNSEEN.finditer(text.replace("\x1b", "")))]


def quit_by(terminal: Terminal, how: Callable[[], Any]) -> int:
    """End gputop; its status. Its agents end, too."""
    children = agents(terminal)
    assert children
    how()
    status = terminal.exit_code(10)
    assert all(gone(child) for child in children)
    return status


SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


ESCAPE = b"\x1b[27u"
"""The key as the keyboard protocol has it: no other key can follow too soon."""
TOUR = (
    (b"j", r"(?m)^[▸>]"),
    (b"/eval", "/ filter eval"),
    (b"\r", "filter: e"),
    (b"m0,1", "DEVICES=0,1"),
    (ESCAPE, ""),
    (b"?", "Keys"),
    (ESCAPE, ""),
    (b"G", "g next metric"),
    (ESCAPE, ""),
    (b"H", "All is well"),
    (ESCAPE, ""),
    (b"\x1b[Zj\r", "Esc back"),
    (ESCAPE, ""),
)
"""Keys, and what the screen shows then; after an escape the main screen."""
ELSEWHERE = ("Esc back", "Keys", "Sort by", "SIGTERM to", "/ filter done")
"""What is on screens and lines that an escape closes."""


def shows(terminal: Terminal, sign: str) -> bool:
    """Whether the screen shows the sign; without one, whether it is the main screen."""
    if sign:
        return re.search(sign, terminal.text) is not None
    text = terminal.text
    return HELP in text and not any(words in text for words in ELSEWHERE)


def tour(
    terminal: Terminal,
    looks_well: Callable[[], bool] = lambda: True,
    steps: Sequence[tuple[bytes, str]] = TOUR,
    escape: bytes = ESCAPE,
) -> None:
    """Go through the screens and back to the main one; each has to look well."""
    terminal.wait_for(lambda: HELP in terminal.text and "train.py" in terminal.text)
    for keys, sign in steps:
        terminal.send(escape if keys == ESCAPE else keys)
        terminal.wait_for(lambda sign=sign: shows(terminal, sign))  # type: ignore[misc]
        assert looks_well(), terminal.text
