"""The mapping in both directions, a row per device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.frameworks import device_name
from gputop.model.cuda.mapping import bus_id
from gputop.model.machine.text import printable, short_name
from gputop.tui.panes.columns import Column
from gputop.tui.panes.lines import Piece, StyledLine, spread
from gputop.tui.panes.mapping_lines import certainty, occupancy, without_devices
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.table import Table

_NAMES = (
    # framework, heading, cells, rank
    ("pytorch", "PyTorch, vLLM", 13, 0),
    ("tensorflow", "TensorFlow", 15, 2),
    ("jax", "JAX", 18, 5),
    ("cupy", "CuPy", 21, 8),
    ("numba", "Numba", 13, 7),
    ("onnxruntime", "ONNX Runtime", 12, 9),
    ("llama_cpp", "llama.cpp", 9, 6),
)


class NamedDevice(NamedTuple):
    """A device of the machine and what a program calls it."""

    device: CudaDevice
    logical: int | None
    reason: str = ""
    """Why it has no name."""


class DeviceTable(Table[NamedDevice]):
    """Devices under a rule with a title."""

    head_lines = 2
    gap = 2
    title = ""

    def __init__(self, state: MappingState) -> None:
        super().__init__()
        self._state = state

    def devices(self) -> list[NamedDevice]:
        raise NotImplementedError

    def show_result(self) -> None:
        self._rows = self.devices()
        self.fit()
        self.show(self._rows, [row.device.id for row in self._rows])

    @property
    def needed(self) -> int:
        """Lines for the head and all rows."""
        return max(1, len(self._rows)) + self.head_lines

    def head(self, y: int) -> Iterable[Piece]:
        if y == 1:
            return super().head(y)
        line = self.glyphs.rule
        first, last, count = self.span
        span = f"{first}-{last} of {count}" if last - first + 1 < count else f"{count}"
        left = [(f"{line} ", "track"), (f"{self.title} ", "heading" if self.is_active else "quiet")]
        right = [*self.rule_words(), (f" {span} ", "quiet"), (line, "track")]
        return spread(left, right, self.size.width, (line, "quiet"))

    def rule_words(self) -> list[Piece]:
        """Return what the rule says before the count of rows."""
        return []

    def _text(self, text: Callable[[NamedDevice], str]) -> Callable[[NamedDevice, int], StyledLine]:
        """Return what draws a cell of text."""
        return lambda named, _: [(self.glyphs.text(printable(text(named), 400)), "text")]

    def _device(self, rank: int) -> Column[NamedDevice]:
        wanted = max((len(_device(named)) for named in self._rows), default=0)
        width = max(6, min(wanted, 34 if self.size.width >= 120 else 28))
        return Column("device", "DEVICE", width, width, rank, self._text(_device), left=True)

    def _bus_id(self, rank: int) -> Column[NamedDevice]:
        draw = self._text(lambda named: bus_id(named.device))
        return Column("bus", "BUS ID", 12, 12, rank, draw, left=True)

    def _room(self, rank: int) -> list[Column[NamedDevice]]:
        def unused(named: NamedDevice, width: int) -> Sequence[Piece]:
            (text, role), _ = occupancy(self._state, named.device, self.glyphs)
            return [(text or self.glyphs.not_available, role)]

        def who(named: NamedDevice, width: int) -> Sequence[Piece]:
            return [occupancy(self._state, named.device, self.glyphs, "")[1]]

        return [
            Column("unused", "MEMORY", 15, 15, rank, unused),
            Column("who", "WHO", 8, 24, rank, who, left=True),
        ]


class LogicalTable(DeviceTable):
    """Logical to physical: what every framework calls the k-th visible device, and what it is."""

    title = "Logical to physical"

    def devices(self) -> list[NamedDevice]:
        return [
            NamedDevice(device, k) for k, device in enumerate(self._state.mapping.visible or ())
        ]

    def columns(self) -> list[Column[NamedDevice]]:
        return [
            *(self._named(*name) for name in _NAMES),
            self._device(1),
            self._bus_id(4),
            *self._room(3),
        ]

    def empty(self) -> Iterable[Piece]:
        return without_devices(self._state.mapping)

    def rule_words(self) -> list[Piece]:
        line = self.glyphs.rule
        return [(" ", "text"), certainty(self._state), (f" {line * 2}", "track")]

    def _named(self, framework: str, label: str, width: int, rank: int) -> Column[NamedDevice]:
        def draw(named: NamedDevice, _: int) -> Sequence[Piece]:
            return [(device_name(framework, named.logical or 0), "heading")]

        return Column(framework, label, width, width, rank, draw, left=True)


class PhysicalTable(DeviceTable):
    """Physical to logical: every GPU and MIG device, and its name or why it is hidden."""

    title = "Physical to logical"

    def devices(self) -> list[NamedDevice]:
        mapping = self._state.mapping
        logical = {device.id: k for k, device in enumerate(mapping.visible or ())}
        why = {hidden.device.id: hidden.reason for hidden in mapping.hidden}
        if mapping.visible is None:
            which = "visible, but its name is not known"
            why = {device.id: which for device in mapping.visible_set or ()}
        unknown = "is not known" if mapping.visible is None else ""
        rows = []
        for gpu in self._state.inventory.devices:
            parts = gpu.parts()
            if parts[0].instance:
                rows.append(NamedDevice(gpu, None, "MIG mode: see its MIG devices"))
            for part in parts:
                key = part.id
                rows.append(NamedDevice(part, logical.get(key), why.get(key, unknown)))
        return rows

    def columns(self) -> list[Column[NamedDevice]]:
        why = self._text(lambda named: named.reason)
        return [
            self._device(0),
            Column("logical", "CUDA", 7, 7, 0, self._logical, left=True),
            self._bus_id(2),
            *self._room(5),
            Column("uuid", "UUID", 40, 40, 6, self._text(_uuid), left=True),
            Column("why", "HIDDEN BECAUSE", 24, 60, 1, why, left=True),
        ]

    def _logical(self, named: NamedDevice, width: int) -> Sequence[Piece]:
        if named.logical is not None:
            return [(device_name("pytorch", named.logical), "heading")]
        return [(self.glyphs.not_available, "quiet")]


def _device(named: NamedDevice) -> str:
    device = named.device
    if device.instance is None:
        return f"{device.label:<6} {short_name(device.name)}"
    return device.label


def _uuid(named: NamedDevice) -> str:
    return (named.device.mig_uuid if named.device.instance else named.device.uuid) or ""
