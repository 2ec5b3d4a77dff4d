"""Which protocol versions a gputop speaks, and which one two of them agree on.

Neighbouring releases understand each other: the release that brings version 3 still speaks version
2, the first that was released. The reader passes its versions in the agent's arguments
(`--protocol 2-3`). The agent answers in its Hello, whose fields are the same in all versions.
"""

from __future__ import annotations

from typing import NamedTuple


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.oldest}-{self.newest}"

    def includes(self, version: int) -> bool:
        return self.oldest <= version <= self.newest

    def shared(self, other: Versions) -> int | None:
        """Return the newest version in both ranges; None if they do not overlap."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None


SPOKEN = Versions(2, 2)
"""The versions that this gputop speaks."""


def parse_versions(text: str) -> Versions:
    """Read `2-3`, or `2`; ValueError for anything else."""
    oldest, dash, newest = text.partition("-")
    versions = Versions(int(oldest), int(newest if dash else oldest))
    if not 0 < versions.oldest <= versions.newest:
        raise ValueError(text)
    return versions
