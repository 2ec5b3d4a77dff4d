"""Counts what is recorded for `gputop usage`, from the sums of a day as far as there are any.

Samples are counted by the hour, whether a sum is read or made, and what is counted adds up exactly:
the figures are the same to the last digit with sums and without.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gputop.errors import GputopError
from gputop.model.machine.text import printable
from gputop.model.usage.count import UsageCount, UsageCounter, count_frames
from gputop.model.usage.spans import FrameTime
from gputop.model.usage.totals import UsageTotals
from gputop.recording.datafile import MAX_HOSTS
from gputop.recording.days import is_day
from gputop.recording.reader import MAX_LOSS_CHARS, MOST_FILES, Recording, data_files
from gputop.recording.sums import Mark, Sums, pack, read_sums, unpack, write_sums

_HOUR = 3600
_CALM = 120.0
"""Seconds after the end of an hour in which samples of it may still come."""

Counting = Generator[None, None, UsageCount]
"""Counts, and stops after each frame, so that something else can be done meanwhile."""


class FileUsage:
    """What is counted of one data file, or of several whose samples mix, which have no sums."""

    def __init__(self, paths: Sequence[Path], now: float) -> None:
        """`now`: seconds since the epoch; only hours that are over then get sums."""
        self._paths, self._now = paths, now
        self._mark: Mark | None = None
        self._sums: Sums | None = None
        if len(paths) == 1:
            with suppress(OSError):  # it is among the losses
                self._mark, self._sums = read_sums(paths[0])
        self.spans: dict[str, tuple[float, float]]
        """The times of the first and the last sample, by host."""
        self.losses: tuple[str, ...]
        """What is wrong with the file, in words; more is noticed when samples are read."""
        if self._sums is not None and self._sums.mark == self._mark:
            self.spans = {self._sums.host: (self._sums.first, self._sums.last)}
            self.losses = tuple(printable(loss, MAX_LOSS_CHARS) for loss in self._sums.losses)
        else:
            if self._sums is not None and not self._has_grown(self._sums):
                self._sums = None
            self.spans = {host: self._samples.span(host) for host in self._samples.hosts}
            self.losses = self._samples.losses

    @property
    def is_done(self) -> bool:
        """Whether all of it has sums."""
        return self._sums is not None and self._sums.is_complete

    def last(self, host: str) -> FrameTime | None:
        """Return its last sample of a host."""
        if self._kept is not None and self.is_done and host in self.spans:
            return self._kept.last
        return count_frames(islice(self._samples.frames(host, newest_first=True), 1)).last

    @cached_property
    def _kept(self) -> UsageCount | None:
        """What the sums have."""
        return None if self._sums is None else unpack(self._sums.whole)

    def may_follow(self, before: FrameTime | None) -> bool:
        """Whether its sums, if it has any, are of a file after this sample; None: of the first."""
        return self._kept is None or self._kept.before == before

    def whole(self, host: str, before: FrameTime | None, only_over: bool = False) -> Counting:
        """Count all of it and keep the sums; `before`: the frame before the first one, if there is
        any. `only_over`: without the hour that has not ended."""
        count = self._kept
        if count is None or count.before != before:
            count, self._sums = UsageCount(before=before), None
        if self.is_done:
            return count
        kept = {} if self._sums is None else self._sums.hours
        hours = [hour for hour in self._hours(host) if hour not in kept]
        over = [hour for hour in hours if (hour + 1) * _HOUR + _CALM <= self._now]
        for hour in over:
            part = yield from self._hour(host, hour, count.last or before)
            count.merge(part)
            kept[hour] = pack(part)
        if over:
            self._keep(host, pack(count), kept)
        for hour in () if only_over else hours[len(over) :]:
            count.merge((yield from self._hour(host, hour, count.last or before)))
        return count

    def parts(
        self, host: str, since: float, until: float, before: FrameTime | None
    ) -> Iterator[UsageCount]:
        """Count the hours of a part of it, both ends included; `before` as above."""
        for hour in self._hours(host):
            begin, end = hour * _HOUR, (hour + 1) * _HOUR
            if until < begin or end <= since:
                continue
            part = None
            if since <= begin and end <= until and self._sums and hour in self._sums.hours:
                part = unpack(self._sums.hours[hour])
            if part is None or part.before != before:
                part = _result(self._hour(host, hour, before, since, until))
            before = part.last or before
            yield part

    @cached_property
    def _samples(self) -> Recording:
        return Recording(self._paths[0], self._paths)

    def _has_grown(self, sums: Sums) -> bool:
        """Whether a file that is longer than its sums has nothing new in their hours."""
        if self._samples.hosts != (sums.host,):
            return False
        return bisect_left(self._samples.times(sums.host), sums.end) == sums.samples

    def _hours(self, host: str) -> list[int]:
        if self._sums is not None and self.is_done:
            return list(self._sums.hours)
        return sorted({int(when // _HOUR) for when in self._samples.times(host)})

    def _hour(
        self,
        host: str,
        hour: int,
        before: FrameTime | None,
        since: float = -math.inf,
        until: float = math.inf,
    ) -> Counting:
        """Count an hour, or the part of it that is asked for."""
        recording, counter = self._samples, UsageCounter(before)
        count_of_losses = len(recording.losses)
        end = math.nextafter((hour + 1) * _HOUR, -math.inf)
        for frame in recording.frames(host, max(since, hour * _HOUR), min(until, end)):
            counter.add(frame)
            yield
        count = counter.count()
        count.losses = list(recording.losses[count_of_losses:])
        return count

    def _keep(self, host: str, whole: bytes, hours: dict[int, bytes]) -> None:
        """Write the sums of a day that has one host; `whole`: all of the hours."""
        [path, *others] = self._paths
        if others or self._mark is None or not is_day(path.name) or len(self.spans) != 1:
            return
        times = self._samples.times(host)
        samples = bisect_left(times, (max(hours) + 1) * _HOUR)
        facts = (*self.spans[host], samples, samples == len(times), list(self.losses))
        write_sums(path, Sums(self._mark, host, *facts, whole, hours))


class _Part(NamedTuple):
    """The samples of a host in one data file."""

    first: float
    last: float
    path: Path


class RecordedUsage:
    """What is counted of a recording, a file or a folder. Its content is not trusted."""

    def __init__(self, path: Path, now: float) -> None:
        """GputopError if it is none, or has no samples."""
        self._now = now if path.is_dir() else -math.inf  # what is before a file is not known
        self._parts: dict[str, list[_Part]] = {}
        self._losses: dict[str, None] = {}
        """Why files and hosts are left out, in words."""
        files = data_files(path)
        if len(files) > MOST_FILES:
            self._lose(f"{path} has more than {MOST_FILES} files: the oldest are left out")
        for file in files[-MOST_FILES:]:
            self._find(file)
        if not self._parts:
            Recording(path)  # says why, if it is none
            raise GputopError(f"{path} has no samples yet")

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last sample."""
        parts = [part for parts in self._parts.values() for part in parts]
        return min(part.first for part in parts), max(part.last for part in parts)

    def add_to(self, totals: UsageTotals) -> None:
        """Count all hosts in the span of time of the totals."""
        for host, parts in self._parts.items():
            totals.add(host, self._counts(host, _apart(parts), totals))
        totals.losses = self._losses | totals.losses

    def _find(self, path: Path) -> None:
        """Find the hosts of a data file."""
        file = FileUsage([path], self._now)
        if not file.spans:
            self._losses |= dict.fromkeys(file.losses)
        for host, (first, last) in file.spans.items():
            if host in self._parts or len(self._parts) < MAX_HOSTS:
                self._parts.setdefault(host, []).append(_Part(first, last, path))
            else:
                self._lose(f"hosts beyond {MAX_HOSTS} are left out")

    def _counts(
        self, host: str, groups: list[list[_Part]], totals: UsageTotals
    ) -> Iterator[UsageCount]:
        before: FrameTime | None = None
        since, until = totals.since, totals.until
        for number, parts in enumerate(groups):
            first, last = parts[0].first, max(part.last for part in parts)
            if last < since or first > until:
                continue
            file = FileUsage([part.path for part in parts], self._now)
            totals.losses |= dict.fromkeys(file.losses)
            is_whole = since <= first and last <= until and (before is not None or number == 0)
            counts: Iterable[UsageCount]
            if is_whole and file.may_follow(before):
                counts = [_result(file.whole(host, before))]
            else:
                counts = file.parts(host, since, until, before)
            for count in counts:
                before = count.last or before
                yield count

    def _lose(self, words: str) -> None:
        self._losses[printable(words, MAX_LOSS_CHARS)] = None


def _apart(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return files in the order of time, those together whose samples mix."""
    groups: list[list[_Part]] = []
    end = -math.inf
    for part in sorted(parts):
        if part.first <= end:
            groups[-1].append(part)
        else:
            groups.append([part])
        end = max(end, part.last)
    return groups


def _result(counting: Counting) -> UsageCount:
    while True:
        try:
            next(counting)
        except StopIteration as end:
            count: UsageCount = end.value
            return count


def make_sums(path: Path, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Make the sums of a folder of recordings and of its folders of hosts, of each hour when it is
    over. It never ends, and stops after each sample and file that it reads."""
    done: set[Path] = set()
    while True:
        now = clock()
        with suppress(GputopError, OSError):
            before: dict[Path, Path] = {}
            for file in data_files(path):
                previous, before[file.parent] = before.get(file.parent), file
                if file not in done:
                    yield from _sum(file, previous, now, done)
        while now <= clock() < (now // _HOUR + 1) * _HOUR + _CALM:
            yield


def _sum(path: Path, previous: Path | None, now: float, done: set[Path]) -> Iterator[None]:
    """Make the sums of a data file; add it to those that are done if it has them all."""
    file = FileUsage([path], now)
    yield
    if len(file.spans) != 1 or not is_day(path.name):
        return
    [host] = file.spans
    before = None if previous is None else FileUsage([previous], now).last(host)
    if file.is_done and (before is None or file.may_follow(before)):
        done.add(path)
    else:
        yield from file.whole(host, before, only_over=True)
