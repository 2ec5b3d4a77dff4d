"""Who is on a GPU, and why a GPU has no current values."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.health.findings import SAID_BY_ROW, findings
from gputop.model.health.free import is_free, vacancy
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, GpuPart
from gputop.model.machine.text import coarse_duration, duration
from gputop.tui.panes.columns import cut
from gputop.tui.panes.lines import Lines, Piece, width_of
from gputop.tui.themes import LEVEL_ROLES, user_role

_ROLES = {"free": "good", "not listed": "notice", "unaccounted": "notice"}
_LEAST_NAME = 6
"""With fewer cells than this for names, the time a GPU has been idle or silent is left out."""
_SHORT_NAME = 4
"""With fewer cells than this for a name, the number of further users gives way to it."""


class Occupants:
    """Who is on the GPUs of one frame, and which of them are free."""

    def __init__(self, frame: Frame, idle_after: float) -> None:
        self._frame, self._idle_after = frame, idle_after

    def who(self, line: GpuPart, width: int) -> Sequence[Piece]:
        """Return who is on a GPU or a MIG device, how long it has been idle or silent, and at the
        right what is wrong; there is always room for an alarm."""
        gpu = line.gpu
        mark = self._mark(gpu) if line.device is None else None
        room = width
        if mark is not None and mark[1] == "alarm" and gpu.state != "silent":
            room -= width_of([mark]) + 1
        since = self._since(line)
        if room - width_of(since) < _LEAST_NAME:
            since = []
        pieces = self._names(line, room - width_of(since))
        left = room - width_of([*pieces, *since])
        claims = self._reserved(line, left, bool(pieces)) + self._held(line, bool(pieces))
        claim = next((words for words in claims if width_of(words) <= left), [])
        if pieces:
            pieces += [*since, *claim]
        elif claim:
            pieces = claim
        elif mark is None or mark[1] != "alarm":
            pieces = [self._nobody(line)]
            if not is_free(self._frame, gpu, line.device) and width_of([*pieces, *since]) <= room:
                pieces += since
        spare = width - width_of(pieces) - width_of([mark] if mark else [])
        if mark is not None and spare >= bool(pieces):
            pieces += [(" " * spare, "text"), mark]
        return pieces

    def sentence(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        """Return why a GPU has no current values, in the longest words that fit; empty if it has
        some."""
        sentences = silence(gpu)
        if not sentences:
            return ()
        sign = f"{Lines.glyphs.stale} " if gpu.is_overdue else ""
        fitting = [text for text in sentences if len(sign) + len(text) <= width]
        return [(f"{sign}{[*fitting, sentences[-1]][0]}", "alarm")]

    def _mark(self, gpu: Gpu) -> Piece | None:
        for finding in findings(self._frame, gpu):
            if finding.code not in SAID_BY_ROW:
                return f"{Lines.glyphs.warning} {finding.code}", LEVEL_ROLES[finding.level]
        return None

    def _since(self, line: GpuPart) -> list[Piece]:
        gpu = line.gpu
        if line.device is not None or silence(gpu):
            return []
        if gpu.state == "late":
            return [(f" {Lines.glyphs.stale} {duration(gpu.stale_for)}", "notice")]
        is_idle = gpu.idle_for is not None and gpu.idle_for >= self._idle_after
        return [(f" idle {coarse_duration(gpu.idle_for or 0.0)}", "notice")] if is_idle else []

    def _reserved(self, line: GpuPart, room: int, others: bool) -> list[list[Piece]]:
        """Return who has reserved the GPU but is not on it, in words from long to short. After
        the names of `others`, who are on it, the name is never cut."""
        reservation = summary.pending_reservation(self._frame, line.gpu, line.device)
        if reservation is None:
            return []
        user, age = reservation.user, coarse_duration(self._frame.time - reservation.since)
        text, role = Lines.glyphs.text(user), user_role(user)
        by: Piece = (" reserved by " if others else "reserved by ", "notice")
        short = "reserved "
        choices: list[list[Piece]] = [
            [by, (text, role), (f", {age}", "notice")],
            [by, (text, role)],
            [(short, "notice"), (cut(text, room - len(short), Lines.glyphs.ellipsis), role)],
            [(short.rstrip(), "notice")],
        ]
        if others:
            return choices[:2]
        return choices[3:] if room < len(short) + _SHORT_NAME else choices

    def _held(self, line: GpuPart, others: bool) -> list[list[Piece]]:
        """Return which job of Slurm holds the GPU without a process on it, and whose it is, in
        words from long to short."""
        job = summary.pending_job(self._frame, line.gpu) if line.device is None else None
        if job is None:
            return []
        number = "Slurm job" if job.number is None else f"job {job.number}"
        owner: list[Piece] = (
            [(Lines.glyphs.text(job.user), user_role(job.user))] if job.user else []
        )
        blank = " " * bool(owner)
        if others:
            return [[(" held by ", "notice"), *owner]] if owner else []
        return [
            [*owner, (f"{blank}Slurm {number.removeprefix('Slurm ')}", "notice")],
            [*owner, (f"{blank}{number}", "notice")],
            [(number, "notice")],
        ]

    def _names(self, line: GpuPart, room: int) -> list[Piece]:
        users, unknown = summary.users_on(self._frame, line.gpu, line.device)
        return names(users, unknown, room)

    def _nobody(self, line: GpuPart) -> Piece:
        word = vacancy(self._frame, line.gpu, line.device)
        if word is None:
            return Lines.glyphs.not_available, "quiet"
        return word, _ROLES.get(word, "quiet")


def silence(gpu: Gpu) -> Sequence[str]:
    """Return why a GPU has no usable values, in sentences from long to short; empty if it has some,
    even some seconds old."""
    if gpu.state == "lost":
        return (gpu.error or "lost",)
    if gpu.state != "silent" and gpu.has_answered:
        return ()
    if gpu.stale_for is None:
        return "has not answered yet", "no answer"
    age = duration(gpu.stale_for)
    return f"no answer for {age}", f"hung {age}", age


def names(users: Sequence[str], unknown: int, room: int) -> list[Piece]:
    """Return as many users as fit, the first one cut if necessary, then the number of processes
    that are not in /proc (`unknown`), and how many are left out."""
    people = [(Lines.glyphs.text(user), 1) for user in users]
    if unknown:
        people.append((f"{unknown} not in /proc", unknown))
    left, pieces = len(users) + unknown, list[Piece]()
    for n, (text, count) in enumerate(people):
        left -= count
        more = f" +{left}" if left else ""
        if not pieces:
            is_short = room - len(more) < _SHORT_NAME
            text = cut(text, room if is_short else room - len(more), Lines.glyphs.ellipsis)
        else:
            text = f" {text}"
            if width_of([(text, "")]) + len(more) > room:
                more = f" +{left + count}"
                return [*pieces, (more, "quiet")] if len(more) <= room else pieces
        pieces.append((text, user_role(users[n]) if n < len(users) else "notice"))
        room -= width_of(pieces[-1:])
    return pieces
