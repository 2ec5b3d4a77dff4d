"""The mapping pane: what a CUDA_VISIBLE_DEVICES value means on this machine, as it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.model import summary
from gputop.model.frame import Frame, Gpu
from gputop.model.frameworks import MAIN, device_name
from gputop.model.text import GIB, printable, short_name, three_digits
from gputop.model.visibility import (
    Mapping,
    export_line,
    normalize_bus_id,
    resolve,
)
from gputop.tui.widgets.columns import cut, sized
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of
from gputop.tui.widgets.table import Table

_LITTLE_FREE = 0.05
_WIDE = 100
"""Cells from which there is room for bus ids."""
_CERTAINTY_ROLES = {"exact": "good", "expected": "text", "predicted": "notice", "unknown": "alarm"}
Line = list[Piece]


def certainty(mapping: Mapping) -> Piece:
    """How far the answer can be trusted, in a word."""
    if not mapping.documented:
        return "not documented", "notice"
    return mapping.certainty, _CERTAINTY_ROLES[mapping.certainty]


def variable(mapping: Mapping) -> str:
    """The variable as it is set, harmless to print."""
    if mapping.value is None:
        return "CUDA_VISIBLE_DEVICES is unset"
    return f"CUDA_VISIBLE_DEVICES={printable(mapping.value, 256)}"


def order_text(mapping: Mapping) -> str:
    """The other variable."""
    if mapping.order is None:
        return "CUDA_DEVICE_ORDER is unset"
    return f"CUDA_DEVICE_ORDER={printable(mapping.order, 64)}"


class MappingLine(Lines):
    """The mapping in one line, for a short terminal."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._mapping = resolve(None, ())
        self._frame: Frame | None = None

    def show_mapping(self, mapping: Mapping, frame: Frame) -> None:
        """Another answer, or another frame under it."""
        self._mapping, self._frame = mapping, frame
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """The rule with variable, devices and certainty."""
        line, mapping = self.glyphs.rule, self._mapping
        name = cut(self.glyphs.text(variable(mapping)), self.size.width // 2, self.glyphs.ellipsis)
        left: Line = [(f"{line} ", "track"), (name, "heading"), (f" {line * 2} ", "track")]
        if mapping.order is not None:
            order = self.glyphs.text(printable(mapping.order, 14))
            left += [(order, "text"), (f" {line * 2} ", "track")]
        right: Line = [(f" {line * 2} ", "track"), certainty(mapping), (f" {line}", "track")]
        room = self.size.width - width_of([*left, *right])
        names = sized(list(self._names()), max(0, room), self.glyphs.ellipsis, left=True)
        return spread([*left, *names], right, self.size.width, line)

    def _names(self) -> Iterator[Piece]:
        mapping, frame = self._mapping, self._frame
        if frame is None:
            return
        if mapping.visible is None:
            yield (
                f"{mapping.count} visible" if mapping.count is not None else "cannot be told",
                "text",
            )
        elif not mapping.visible:
            yield "no GPU is visible", "alarm"
        gpus = {gpu.index: gpu for gpu in frame.gpus}
        for k, device in enumerate(mapping.visible or ()):
            yield f"{device_name('pytorch', k)}=GPU {device.index}", "text"
            if _is_full(gpus[device.index]):
                yield " (full)", "alarm"
            yield "  ", "text"


class MappingResult(Table[Line]):
    """The mapping, a line a device, then what was dropped and why."""

    HELP = "Which physical GPU each framework's device is under the value above."
    head_lines = 0

    def show_mapping(self, mapping: Mapping, frame: Frame) -> None:
        """Another answer, or another frame under it."""
        lines = list(self._lines(mapping, frame))
        self.show(lines, list(range(len(lines))))

    def row_pieces(self, row: Line, selected: bool) -> Iterable[Piece]:
        """A line, cut to the width."""
        pieces = sized(row, self.size.width, self.glyphs.ellipsis, left=True)
        return [(text, "cursor") for text, _ in pieces] if selected else pieces

    def _lines(self, mapping: Mapping, frame: Frame) -> Iterator[Line]:
        gpus = {gpu.index: gpu for gpu in frame.gpus}
        for k, device in enumerate(mapping.visible or ()):
            yield self._device(k, gpus[device.index], frame)
        if mapping.visible is None:
            yield [("  ", "text"), (self._unordered(mapping), "notice")]
        said = any(entry.message == mapping.because for entry in mapping.entries)
        if not said and (mapping.visible is None or mapping.certainty == "expected"):
            yield [(f"  {self.glyphs.text(mapping.because)}", "quiet")]
        if mapping.visible == ():
            yield [("  no GPU is visible", "alarm")]
        for entry in mapping.entries:
            if entry.outcome in ("stopped", "duplicate", "unresolved"):
                message = self.glyphs.text(printable(entry.message, 400))
                yield [(f"  {self.glyphs.warning} ", "alarm"), (message, "text")]
        yield from self._hidden(mapping)
        yield [("  ", "text"), (self.glyphs.text(printable(export_line(mapping))), "key")]

    def _device(self, k: int, gpu: Gpu, frame: Frame) -> Line:
        torch, tensorflow = (device_name(framework, k) for framework in MAIN)
        place = normalize_bus_id(gpu.pci_bus_id)
        bus = "-" if place is None else f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}.0"
        bus = f"{bus}  " if self.size.width >= _WIDE else ""
        line: Line = [
            (f"  {torch:<8} {tensorflow:<15} ", "heading"),
            (f"{self.glyphs.to}  ", "quiet"),
            (f"GPU {gpu.index:<2} {self.glyphs.text(short_name(gpu.name))}  {bus}", "text"),
        ]
        if gpu.memory_free is None:
            return [*line, ("free memory is not known", "quiet")]
        line.append((f"{three_digits(gpu.memory_free / GIB):>5} GiB free  ", "text"))
        who = summary.users(frame, gpu)
        by = f"used by {self.glyphs.text(' '.join(who))}" if who else ""
        if _is_full(gpu):
            line.append((f"{self.glyphs.warning} full{': ' * bool(by)}{by}", "alarm"))
        elif by:
            line.append((by, "notice"))
        return line

    def _unordered(self, mapping: Mapping) -> str:
        if mapping.count is None:
            return "which GPUs are visible cannot be told"
        names = ", ".join(f"GPU {device.index}" for device in mapping.visible_set or ())
        which = f": {names}" if names else ""
        plural = "s are" if mapping.count != 1 else " is"
        return f"{mapping.count} GPU{plural} visible{which}; which is cuda:0 cannot be told"

    def _hidden(self, mapping: Mapping) -> Iterator[Line]:
        """One line for each reason."""
        reasons: dict[str, list[int]] = {}
        for hidden in mapping.hidden:
            reasons.setdefault(hidden.reason, []).append(hidden.device.index)
        for reason, indices in reasons.items():
            names = ", ".join(map(str, indices))
            text = self.glyphs.text(printable(reason, 300))
            yield [(f"  hidden: GPU {names}", "text"), (f" ({text})", "quiet")]


def _is_full(gpu: Gpu) -> bool:
    if gpu.memory_free is None or not gpu.memory_total:
        return False
    return gpu.memory_free < gpu.memory_total * _LITTLE_FREE
