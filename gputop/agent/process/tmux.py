"""Names of tmux sessions, where their server tells them."""

from __future__ import annotations

import os
import stat
import time

from gputop.model.text import printable

_LIMIT = 0.5
"""Seconds for an answer."""
_AGAIN = 60.0
"""Seconds that an answer is good for, and none as well."""
_ASKED = "#{pid} #{session_id} #{session_name}"


class TmuxSessions:
    """Asks each server for all of its sessions at once, and no server of another user's: who
    writes a variable could send us to any socket."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}

    def name(self, variable: str, owner: int | None) -> str | None:
        """Of the session that TMUX names, in a process of that user: `socket,pid of the
        server,number of the session`. None where it cannot be known; blocks for a moment."""
        rest, _, number = variable.rpartition(",")
        socket, _, server = rest.rpartition(",")
        if owner != os.getuid() or not _is_socket_of(socket, owner):
            return None
        at, names = self._asked.get((socket, server), (-_AGAIN, {}))
        if time.monotonic() - at >= _AGAIN:
            names = _names(socket, server)
            now = time.monotonic()
            self._asked = {key: one for key, one in self._asked.items() if now - one[0] < _AGAIN}
            self._asked[socket, server] = now, names
        return names.get(f"${number}")


def _is_socket_of(path: str, owner: int) -> bool:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(about.st_mode) and about.st_uid == owner and os.path.isabs(path)


def _names(socket: str, server: str) -> dict[str, str]:
    """By `$N`; of that server alone: another may have come to its socket, and a socket in a
    container is not the one that is here."""
    from gputop.agent.program import answer_of  # it takes long, and a look seldom needs it

    answer = answer_of(["tmux", "-S", socket, "list-sessions", "-F", _ASKED], _LIMIT)
    lines = [line.split(" ", 2) for line in (answer or "").splitlines()]
    return {
        line[1]: name
        for line in lines
        if len(line) == 3 and line[0] == server and (name := printable(line[2], 64))
    }
