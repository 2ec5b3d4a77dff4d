"""Names of hosts, as people give them to -H.

    word    name[,name...]
    name    [user@]host[:port], @group, @slurm, or - for the words of standard input
    host    what ssh takes: a name, an alias of its configuration, an address; a range of numbers
            in brackets, as in node[01-04,7], stands for a host each

Ranges are read as Slurm and ClusterShell read them: 01 keeps its zeros, 0-10/2 goes in steps. The
library for that, ClusterShell, is not used: it has configuration and group sources of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, NoReturn, TextIO

from gputop.errors import UsageError
from gputop.model.machine.text import is_blank, printable

SLURM = "slurm"
"""The group of the hosts of this Slurm job."""
JOB = "SLURM_JOB_NODELIST"
"""The variable with the hosts of this Slurm job."""
MOST_HOSTS = 1000
MOST_CHARACTERS = 1 << 20
"""Characters of a list of hosts."""
_MOST_WORDS = 10_000
_MOST_RANGES = 10
"""Ranges of a name, and groups within groups."""
_MAX_NAME_CHARS = 320
"""Characters of a name, once its ranges are numbers: 255 are a host's, the others user and port."""
_WORD = re.compile(r"((?:\[[^\[\]]*\]|[^,])*),")
"""A text up to the next comma that is not within brackets."""
_RANGES = re.compile(r"\[([0-9][0-9,/-]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?:/([1-9][0-9]{0,8}))?)?")
_NAME = re.compile(
    r"(?:(?P<user>[\w.+=~@\\][\w.+=~@\\-]*)@)?"
    r"(?:(?P<host>[\w.][\w.-]*)(?::(?P<port>[0-9]{1,5}))?"
    r"|(?P<address>[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(?:%\w+)?)"
    r"|\[(?P<quoted>[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(?:%\w+)?)\](?::(?P<its_port>[0-9]{1,5}))?)",
    re.ASCII | re.IGNORECASE,
)
"""An IPv6 address is in brackets if a port follows it."""


class HostName(NamedTuple):
    """A host, by the name that it was asked for."""

    requested_name: str
    """The name as it was given: `bob@node3:2222`."""
    target: str
    """The name as ssh takes it: `bob@node3`."""
    port: int | None
    """None: the port in ssh's configuration."""


def parse_hosts(
    words: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    stdin: TextIO | None,
) -> tuple[HostName, ...]:
    """Return the hosts in their order, each once. UsageError if a word names none."""
    reader = _Reader(groups, environ, stdin)
    texts = (text for word in words for text in reader.texts(word))
    names = list(map(_host_name, islice(texts, MOST_HOSTS + 1)))
    if len(names) > MOST_HOSTS:
        raise UsageError(f"-H names more than {MOST_HOSTS} hosts: give fewer")
    if not names:
        raise UsageError("-H names no host")
    hosts: dict[tuple[str, str, int | None], HostName] = {}
    for name in names:
        hosts.setdefault(_identity(name), name)
    return tuple(hosts.values())


def words_in(text: str) -> list[str]:
    """Return the words of a list of hosts, separated by blanks, line ends and commas; a `#` begins
    a comment."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [word.strip(",") for line in lines for word in line.split() if word.strip(",")]


def _host_name(text: str) -> HostName:
    """Return the host of a name. UsageError."""
    match = _NAME.fullmatch(text) if len(text) <= _MAX_NAME_CHARS else None
    if match is None:
        _refuse(text, _reason(text))
    user, port = match["user"], match["port"] or match["its_port"]
    if port is not None and not 0 < int(port) < 1 << 16:
        _refuse(text, f"has port {port}: ports go from 1 to 65535")
    host = match["host"] or match["address"] or match["quoted"]
    return HostName(text, f"{user}@{host}" if user else host, int(port) if port else None)


def plain_host(text: str) -> HostName | None:
    """Return the host of a name from elsewhere, as `node1` of `node1:9100`, whose port is not
    ssh's. None if it has a user, or is no plain name or address."""
    match = _NAME.fullmatch(text)
    host = match and (match["host"] or match["address"] or match["quoted"])
    if match is None or host is None or match["user"] is not None:
        return None
    return HostName(host, host, None)


def _identity(name: HostName) -> tuple[str, str, int | None]:
    """Return what two names of one host have in common: ssh takes NODE1 for node1."""
    user, _, host = name.target.rpartition("@")
    return user, host.lower(), name.port


class _Reader:
    """Reads words, and expands their groups and ranges."""

    def __init__(
        self,
        groups: Mapping[str, Sequence[str]],
        environ: Mapping[str, str],
        stdin: TextIO | None,
    ) -> None:
        self._groups, self._environ, self._stdin = groups, environ, stdin
        self._left = _MOST_WORDS

    def texts(self, word: str, above: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the names that a word stands for, unchecked; `above` are the groups that it is
        in."""
        self._left -= 1
        if self._left < 0 or len(word) > MOST_CHARACTERS:
            raise UsageError(
                f"-H has more than {_MOST_WORDS} words, or one that is too long: give fewer"
            )
        for text in _WORD.findall(f"{word},"):
            if text == "-" and not above:
                yield from self._each(self._standard_input(), ("-",))
            elif text.startswith("@"):
                yield from self._group(text[1:], above)
            else:
                if len(_RANGES.findall(text)) > _MOST_RANGES:
                    _refuse(text, f"has more than {_MOST_RANGES} ranges")
                yield from _expanded(text)

    def _each(self, words: Iterable[str], above: tuple[str, ...]) -> Iterator[str]:
        return (text for word in words for text in self.texts(word, above))

    def _group(self, name: str, above: tuple[str, ...]) -> Iterator[str]:
        shown = printable(name, 60)
        if name in above:
            raise UsageError(f"group @{shown} of the settings is part of itself")
        if len(above) >= _MOST_RANGES:
            raise UsageError(f"group @{shown} of the settings is nested too deeply")
        nodes = self._environ.get(JOB, "")
        if name == SLURM and not nodes:
            why = f"this is not a Slurm job ({JOB} is not set), or you are root: name the hosts"
            raise UsageError(f"@slurm: {why}")
        groups = {**self._groups, SLURM: [nodes]}
        if name not in groups:
            defined = ", ".join(f"@{group}" for group in groups)
            raise UsageError(f"no group @{shown} in [groups] of the settings; there is {defined}")
        return self._each(groups[name], (*above, name))

    def _standard_input(self) -> list[str]:
        if self._stdin is None:
            raise UsageError("-H -: standard input is closed")
        try:
            text = self._stdin.read(MOST_CHARACTERS + 1)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"-H -: standard input is no text in {error.encoding}: convert the list to that"
            ) from None
        if len(text) > MOST_CHARACTERS:
            raise UsageError("-H -: standard input is too long for a list of hosts")
        return words_in(text)


def _expanded(text: str) -> Iterator[str]:
    """Yield a text for each number in its ranges."""
    match = _RANGES.search(text)
    if match is None:
        yield text
        return
    for number in _numbers(match[1], text):
        for rest in _expanded(text[match.end() :]):
            yield f"{text[: match.start()]}{number}{rest}"


def _numbers(ranges: str, text: str) -> Iterator[str]:
    """Yield the numbers of `01-04,7`, as wide as they are written."""
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            _refuse(text, f"has no range in [{ranges}]: write it as [01-04,7]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            _refuse(text, f"has a range that goes down, {part}")
        for number in range(first, last + 1, int(match[3] or 1)):
            yield str(number).zfill(len(match[1]))


def _reason(text: str) -> str:
    if is_blank(text):
        return "is empty"
    if text.startswith("-") or "@-" in text:
        return "begins with a dash: ssh would take it for an option"
    if len(text) > _MAX_NAME_CHARS:
        return f"has more than {_MAX_NAME_CHARS} characters"
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        return "has blanks, or characters that cannot be seen"
    return "is not [user@]host[:port]"


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(f"host {printable(text, 80)!r} {why}")
