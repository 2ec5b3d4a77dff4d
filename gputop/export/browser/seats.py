"""Seats for viewers: a bound on their number, which one user cannot use up for all others."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from asyncio import Event, Transport
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from gputop.errors import GputopError

_TRIES = 5
_TIME_WAIT = "06"
"""The state (linux/include/net/tcp_states.h) of a socket that has ended: its owner is unknown."""


class NoSeatError(GputopError):
    """All seats are taken."""


class _Seat(NamedTuple):
    client: str
    lost: Event
    """Set when somebody else is to have the seat, or the server ends."""
    left: Event
    """Set when the viewer has ended."""


class Seats:
    """Takes at most so many viewers. When all seats are taken, a client who has at least two more
    than a newcomer loses the oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: list[_Seat] = []

    @asynccontextmanager
    async def seat(self, client: str) -> AsyncIterator[Event]:
        """Take a seat; the event is set when it is lost. NoSeatError."""
        loser = self._loser(client) if len(self._taken) >= self._most else None
        seat = _Seat(client, Event(), Event())
        self._taken.append(seat)
        try:
            if loser is not None:
                await self._end(loser)
            yield seat.lost
        finally:
            seat.left.set()
            if seat in self._taken:
                self._taken.remove(seat)

    async def clear(self) -> None:
        """End all viewers."""
        await asyncio.gather(*map(self._end, self._taken[:]))

    def _loser(self, client: str) -> _Seat:
        counts = Counter(seat.client for seat in self._taken)
        greediest, count = counts.most_common(1)[0]
        if count < counts[client] + 2:
            raise NoSeatError(f"{self._most} viewers are here already")
        return next(seat for seat in self._taken if seat.client == greediest)

    async def _end(self, seat: _Seat) -> None:
        self._taken.remove(seat)
        seat.lost.set()
        await seat.left.wait()


def client_of(transport: Transport | None) -> str:
    """Return who is at the other end: a user of this machine, by the kernel, or an address.
    ConnectionError if nobody is any more."""
    peer = transport and transport.get_extra_info("peername")
    if not peer:
        raise ConnectionResetError
    host, port = peer[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if not address.is_loopback:
        return str(address)
    words = [address.packed[at : at + 4] for at in range(0, len(address.packed), 4)]
    local = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"uid {_uid_of(f'{local}:{port:04X}', 'tcp' if address.version == 4 else 'tcp6')}"


def _uid_of(local: str, table: str) -> str | None:
    """Return the owner of a socket by its local address, as proc_net_tcp writes it. The table
    changes while it is read, and a row may be missed: then it is read again."""
    for _ in range(_TRIES):
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            for words in map(str.split, lines):
                if words[1] == local and words[3] != _TIME_WAIT:
                    return words[7]
    return None
