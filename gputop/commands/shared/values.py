"""What the words of a command line stand for: sizes, durations, percentages, files; the same for
every command."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping

from gputop.errors import UsageError
from gputop.model.machine.text import printable
from gputop.model.quantity import DURATIONS, MAX_BYTES, SIZES, read_quantity
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL
from gputop.trust import is_secret

_MOST_BYTES = 64 << 20


def quantity(
    units: Mapping[str, float], example: str, most: float, least: float = 0
) -> Callable[[str], float]:
    """Return an argparse type for a number with one of `units`, from `least` to `most`."""

    def parse(text: str) -> float:
        amount = read_quantity(text, units)
        if amount is None or not least <= amount <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {example}")
        return amount

    return parse


def duration(example: str, least: float = 0, most: float = math.inf) -> Callable[[str], float]:
    """Return an argparse type for seconds, written as `90`, `10s`, `5m`, `2h` or `7d`."""
    return quantity(DURATIONS, example, most, least)


size = quantity(SIZES, "a size, as 20GiB, 500M or a number of bytes", MAX_BYTES)
"""Bytes."""
percentage = quantity({"": 1, "%": 1}, "a percentage from 0 to 100", 100)
span = duration("a time, as 90, 10m or 2h")
interval = duration(
    f"a number of seconds from {MIN_INTERVAL} to {MAX_INTERVAL:.0f}", MIN_INTERVAL, MAX_INTERVAL
)
"""Seconds between frames."""


def read_file(path: str, most: int = _MOST_BYTES, secret: bool = False) -> bytes:
    """Return the content of a file, `-` for standard input. UsageError names file and reason; it
    has at most `most` bytes, and none that others may read is `secret`."""
    if path == "-" and sys.stdin is None:
        raise UsageError(f"{path!r} cannot be read: standard input is closed")
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            if secret and not is_secret(file.fileno()):
                raise UsageError(f"{printable(path)} is readable by others: chmod go= it")
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from None
    if len(data) > most:
        raise UsageError(f"{path!r} has more than {most >> 20} MiB: give the part of it "
                         "that is about GPUs, as with `head`")  # fmt: skip
    return data
