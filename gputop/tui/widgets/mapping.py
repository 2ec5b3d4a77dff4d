"""What a CUDA_VISIBLE_DEVICES value means on this machine, in lines, as it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from gputop.model.enumeration import Device
from gputop.model.frame import Frame
from gputop.model.frameworks import MAIN, device_name
from gputop.model.question import by_severity, who_is_on
from gputop.model.text import GIB, printable, short_name, three_digits
from gputop.model.visibility import normalize_bus_id
from gputop.tui.glyphs import Glyphs
from gputop.tui.inquiry import Inquiry
from gputop.tui.widgets.columns import cut, sized
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of
from gputop.tui.widgets.sentences import (
    SEVERITY_ROLES,
    absent,
    hidden,
    state,
    suggestion,
    summed_up,
    variable,
)
from gputop.tui.widgets.table import Table

_LITTLE_FREE = 0.05
_WIDE = 100
"""Cells from which there is room for bus ids."""
Line = list[Piece]


def bus_id(device: Device) -> str:
    """As CUDA writes it: a domain of four digits."""
    place = normalize_bus_id(device.pci_bus_id)
    return "-" if place is None else f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}.0"


def room(
    inquiry: Inquiry, device: Device, glyphs: Glyphs, verb: str = "used by "
) -> tuple[Piece, Piece]:
    """How much of a device's memory is free, and who is on it."""
    usage = inquiry.inventory.usage_of(device)
    total, left = usage.memory_total, usage.memory_free
    free = ("", "quiet") if left is None else (f"{three_digits(left / GIB)} GiB free", "text")
    who = who_is_on(inquiry.frame, inquiry.inventory, device) if inquiry.frame else ()
    by = f"{verb}{glyphs.text(' '.join(who))}" if who else ""
    if total and left is not None and left < total * _LITTLE_FREE:
        return free, (f"{glyphs.warning} full{': ' * bool(by)}{by}", "alarm")
    return free, (by, "notice")


class MappingLine(Lines):
    """The mapping in one line, for a short terminal."""

    def __init__(self, inquiry: Inquiry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._inquiry = inquiry

    def pieces(self, y: int) -> Iterable[Piece]:
        """The rule with variable, devices, how much advice there is, and certainty."""
        line, mapping = self.glyphs.rule, self._inquiry.mapping
        name = cut(
            self.glyphs.text(variable(self._inquiry)), self.size.width // 2, self.glyphs.ellipsis
        )
        left: Line = [(f"{line} ", "track"), (name, "heading"), (f" {line * 2} ", "track")]
        if mapping.order is not None:
            order = self.glyphs.text(printable(mapping.order, 14))
            left += [(order, "text"), (f" {line * 2} ", "track")]
        between = (f" {line * 2} ", "track")
        right: Line = [between, state(self._inquiry), (f" {line}", "track")]
        advice = by_severity(self._inquiry.advice)
        if advice:
            mark = f"{self.glyphs.warning} {len(advice)}"
            right = [between, (mark, SEVERITY_ROLES[advice[0].severity]), *right]
        if self._inquiry.note:
            left, right = left[:1], [(f" {line}", "track")]
        left_over = self.size.width - width_of([*left, *right])
        names = sized(list(self._names()), max(0, left_over), self.glyphs.ellipsis, left=True)
        return spread([*left, *names], right, self.size.width, line)

    def _names(self) -> Iterator[Piece]:
        inquiry, mapping = self._inquiry, self._inquiry.mapping
        if inquiry.note:
            yield self.glyphs.text(printable(inquiry.note)), "notice"
            return
        if inquiry.frame is None:
            return
        if mapping.visible is None:
            words = f"{mapping.count} visible" if mapping.count is not None else "cannot be told"
            yield words, "text"
        elif not mapping.visible:
            yield "no GPU is visible", "alarm"
        for k, device in enumerate(mapping.visible or ()):
            yield f"{device_name('pytorch', k)}={self.glyphs.text(device.label)}", "text"
            if room(inquiry, device, self.glyphs)[1][1] == "alarm":
                yield " (full)", "alarm"
            yield "  ", "text"


class MappingResult(Table[Line]):
    """The mapping, a line a device, then what is to be said of it; the line for a shell last."""

    HELP = "Which physical GPU each framework's device is under the value above."
    head_lines = 0
    with_devices = True

    def __init__(self, inquiry: Inquiry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._inquiry = inquiry
        self._offer: str | None = None

    def on_resize(self) -> None:
        """Another width: other lines."""
        super().on_resize()
        self.show_answer(self._offer)

    def show_answer(self, offer: str | None) -> None:
        """The answer of now; `offer` is what the editor would complete."""
        self._offer = offer
        lines = list(self._lines(offer))
        self.show(lines, list(range(len(lines))))

    @property
    def room(self) -> int:
        """Where there is more than a line, the last is kept."""
        return max(1, self.size.height - 1) if self.size.height else 0

    def pieces(self, y: int) -> Iterable[Piece]:
        """A line, or the one for the shell."""
        short = self.size.height == 1 and not self._inquiry.note
        foot = min(len(self._rows), self.size.height - 1)
        return self._foot() if y == foot and not short else super().pieces(y)

    def row_pieces(self, row: Line, selected: bool) -> Iterable[Piece]:
        """A line, cut to the width."""
        pieces = sized(row, self.size.width, self.glyphs.ellipsis, left=True)
        return [(text, "cursor") for text, _ in pieces] if selected else pieces

    def _foot(self) -> Iterable[Piece]:
        note = self._inquiry.note
        whole = self.glyphs.text(printable(note or self._inquiry.export))
        text = cut(whole, self.size.width - 2, self.glyphs.ellipsis)
        first, last, count = self.span
        more = f" {first}-{last} of {count} " if last - first + 1 < count else ""
        shown = [("  ", "text"), (text, "notice" if note else "key")]
        return spread(shown, [(more, "quiet")], self.size.width)

    def _lines(self, offer: str | None) -> Iterator[Line]:
        inquiry, mapping = self._inquiry, self._inquiry.mapping
        if inquiry.frame is None:
            return
        if self.with_devices:
            for k, device in enumerate(mapping.visible or ()):
                yield self._device(k, device, inquiry.frame)
            yield from _wrapped(absent(mapping), self.size.width)
        for line in summed_up(inquiry, self.glyphs):
            yield from _wrapped(line, self.size.width)
        if self.with_devices:
            yield from hidden(mapping, self.glyphs)
        if inquiry.followed is None:
            yield from suggestion(inquiry, offer, self.glyphs)

    def _device(self, k: int, device: Device, frame: Frame) -> Line:
        torch, tensorflow = (device_name(framework, k) for framework in MAIN)
        bus = f"{bus_id(device)}  " if self.size.width >= _WIDE else ""
        name = "" if device.instance else f" {short_name(device.name)}"
        line: Line = [
            (f"  {torch:<8} {tensorflow:<15} ", "heading"),
            (f"{self.glyphs.to}  ", "quiet"),
            (f"{self.glyphs.text(f'{device.label:<6}{name}')}  {bus}", "text"),
        ]
        (free, role), who = room(self._inquiry, device, self.glyphs)
        if not free:
            unknown = "" if device.instance else "free memory is not known  "
            return [*line, (unknown, "quiet"), who]
        return [*line, (f"{free:>14}  ", role), who]


def _wrapped(line: Line, width: int) -> Iterator[Line]:
    """A mark and a sentence, on as many lines as the sentence takes."""
    if not line:
        return
    (mark, of_mark), (text, role) = line
    first, *more = wrap(text, max(20, width - len(mark) - 1)) or [""]
    yield [(mark, of_mark), (first, role)]
    yield from ([("    ", "text"), (words, role)] for words in more)
