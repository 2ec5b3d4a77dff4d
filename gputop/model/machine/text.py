"""Values as text: bytes, seconds, ratios, and text from elsewhere made harmless to print."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable

GIB = 1024**3
MIB = 1024**2
MISSING = "-"

_BLANK_SYMBOLS = "\u115f\u1160\u2800\u3164\uffa0"
"""Hangul fillers and Braille without dots: letters and a symbol to Unicode, blanks to the eye."""

_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|bash|sh|dash|zsh|Rscript|julia)[\d.]*\Z", re.ASCII
)
_PATH = re.compile(r"[\w.+@~:=-]*(?:/+[\w.+@~:=-]+)+\Z")
_TAKES_VALUE = {"-X", "-W", "-Q"}
_CODE_AFTER_E = ("perl", "ruby", "node", "Rscript", "julia")
"""Interpreters that take code after `-e`; the others do after `-c`."""


def printable(text: str, limit: int = 4096) -> str:
    """Return `text` as one line of at most `limit`, without what moves a cursor, reorders or hides.

    C0, DEL, C1, bidi and zero-width controls, lone surrogates, private and unassigned characters
    become U+FFFD; other spaces become a space; variation selectors, whose width terminals
    disagree on, go away.
    """
    if len(text) > limit:
        return printable(text[: limit - 1], limit) + "…"
    if text.isprintable() and text.isascii():
        return text
    return "".join(_harmless(character) for character in text)


def cells(text: str) -> int:
    """Return how many cells of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(each) in ("Mn", "Me") for each in text)


def is_blank(text: str) -> bool:
    """Whether there is nothing to see in it: no letter, digit, sign or symbol."""
    return all(
        unicodedata.category(character)[0] in "ZCM" or character in _BLANK_SYMBOLS
        for character in text
    )


def _harmless(character: str) -> str:
    if "\ufe00" <= character <= "\ufe0f":
        return ""
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else "\ufffd"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: 0.61, 9.81, 38.2, 140."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def size(count: float | None) -> str:
    """Bytes in binary units, as `38.2G`; `0` for none."""
    if count is None:
        return MISSING
    if count < 1024:
        return f"{count:.0f}"
    value, unit = float(count), ""
    for unit in "KMGTP":  # noqa: B007 - the last one tried is the answer
        value /= 1024
        if value < 999.5:
            break
    whole = unit == "K" or (unit == "M" and value >= 9.995)
    return f"{value:.0f}{unit}" if whole else f"{three_digits(value)}{unit}"


def rate(per_second: float) -> str:
    """Bytes per second in SI units, as vendors rate links: `4.15 MB/s`, `419 GB/s`; 0 to 999 in
    whole bytes."""
    if per_second < 999.5:
        return f"{per_second:.0f} B/s"
    value, unit = per_second, ""
    for unit in "kMGTP":  # noqa: B007 - the last one tried is the answer
        value /= 1000
        if value < 999.5:
            break
    return f"{three_digits(value)} {unit}B/s"


def percent(ratio: float | None) -> str:
    """A ratio as a whole percentage without its sign, as `97`."""
    return MISSING if ratio is None else f"{ratio * 100:.0f}"


def duration(seconds: float | None) -> str:
    """A span in at most six characters: 42s, 3m07s, 2h14m, 5d03h, 412d."""
    if seconds is None:
        return MISSING
    total = max(0, int(seconds))
    minutes, second = divmod(total, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days > 99:
        return f"{days}d"
    if days:
        return f"{days}d{hour:02d}h"
    if hours:
        return f"{hours}h{minute:02d}m"
    return f"{minutes}m{second:02d}s" if minutes else f"{second}s"


def plural(number: int, noun: str) -> str:
    """Return a noun as it follows a number: `GPU` or `GPUs`, `process` or `processes`."""
    return noun if number == 1 else noun + ("es" if noun.endswith("s") else "s")


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: `1 GPU`, `208 processes`."""
    return f"{number} {plural(number, noun)}"


def date_time(seconds: float, day: float | None = None) -> str:
    """Return a time as `2026-11-21 18:40:05`, or as `18:40:05` if `day` is a time of the same day;
    both in seconds since the epoch."""
    local = time.localtime(seconds)
    is_same_day = day is not None and time.localtime(day)[:3] == local[:3]
    return time.strftime("%H:%M:%S" if is_same_day else "%Y-%m-%d %H:%M:%S", local)


def clock(seconds: float) -> str:
    """Return the time of day as `18:40:05`; `seconds` since the epoch."""
    return date_time(seconds, seconds)


def clock_time(time_: float, now: float) -> str:
    """Return a time of today as 18:40, others as 2026-11-21 18:40; both in epoch seconds."""
    return date_time(time_, now)[:-3]


def coarse_duration(seconds: float) -> str:
    """A span by its largest unit alone: 42s, 3m, 2h, 5d."""
    total = max(0, int(seconds))
    for size_, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if total >= size_:
            return f"{total // size_}{unit}"
    return f"{total}s"


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers in short: `0-2,5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def short_name(name: str | None) -> str:
    """A GPU's product name without what every one of them says: `NVIDIA H200` is `H200`."""
    if name is None:
        return MISSING
    for prefix in ("NVIDIA ", "GeForce ", "Tesla ", "Quadro "):
        name = name.removeprefix(prefix)
    return name


def short_command(command: str | None) -> str:
    """Return a command script first: `/usr/bin/python3 -u train.py --lr 1` is `train.py --lr 1`.

    What an interpreter runs comes first, as the last part of its path (`-m package` as `package`);
    inline code (`-c`) and other programs keep the program's name in front.
    """
    if not command:
        return MISSING
    program, *rest = command.split(" ")
    name = _base(program)
    if not _INTERPRETER.match(name):
        return " ".join((name, *rest))
    script = _script(rest, "e" if name.startswith(_CODE_AFTER_E) else "c")
    return " ".join(script) if script else " ".join((name, *rest))


def _script(arguments: list[str], code: str) -> list[str] | None:
    """Return the arguments from the script on; None without one. `code` is the letter of the option
    before inline code, which may end a bundle, as in `-lc`."""
    position = 0
    while position < len(arguments):
        argument, *following = arguments[position : position + 2]
        if argument == "-m":
            return arguments[position + 1 :] or None
        if not argument.startswith("-"):
            return [_base(argument), *arguments[position + 1 :]]
        if argument == "-" or re.match(rf"-({code}|[A-Za-z]+{code}\Z)", argument):
            return None
        takes_value = argument in _TAKES_VALUE or "".join(following).isdecimal()
        position += 2 if takes_value else 1
    return None


def _base(path: str) -> str:
    """Return the last part of what looks like a path; a process may also call itself `[/]`."""
    return path.rpartition("/")[2] if _PATH.match(path) else path
