"""The mapping in both directions, a row a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gputop.model.enumeration import Device
from gputop.model.frameworks import device_name
from gputop.model.text import printable, short_name
from gputop.tui.inquiry import Inquiry
from gputop.tui.widgets.columns import Column, Fitted, fit, heading, row
from gputop.tui.widgets.lines import Piece, spread
from gputop.tui.widgets.mapping import bus_id, room
from gputop.tui.widgets.sentences import absent, state
from gputop.tui.widgets.table import Table

_GAP = 2
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


class Place(NamedTuple):
    """A device of the machine and what a program calls it."""

    device: Device
    logical: int | None
    reason: str = ""
    """Why it has no name."""


class PlaceTable(Table[Place]):
    """Devices under a rule with a title."""

    head_lines = 2
    title = ""

    def __init__(self, inquiry: Inquiry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._inquiry = inquiry
        self._columns: Fitted[Place] = []

    def places(self) -> list[Place]:
        """The rows of now."""
        raise NotImplementedError

    def columns(self) -> list[Column[Place]]:
        """Every column there may be."""
        raise NotImplementedError

    def show_answer(self) -> None:
        """The answer of now."""
        places = self.places()
        self._rows = places
        self._fit()
        self.show(places, [(p.device.index, p.device.instance) for p in places])

    @property
    def needed(self) -> int:
        """Lines for all rows."""
        return max(1, len(self._rows)) + self.head_lines

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._fit()
        super().on_resize()

    def head(self, y: int) -> Iterable[Piece]:
        """The rule, then the labels."""
        if y == 1:
            return [(" ", "quiet"), *heading(self._columns, _GAP)]
        line = self.glyphs.rule
        first, last, count = self.span
        place = f"{first}-{last} of {count}" if last - first + 1 < count else f"{count}"
        left = [(f"{line} ", "track"), (f"{self.title} ", "heading")]
        right = [*self.state(), (f" {place} ", "quiet"), (line, "track")]
        return spread(left, right, self.size.width, line)

    def state(self) -> list[Piece]:
        """What the rule says besides."""
        return []

    def row_pieces(self, place: Place, selected: bool) -> Iterable[Piece]:
        """One device."""
        role = "cursor" if selected else None
        lead = self.glyphs.cursor if selected else " "
        pieces = row(self._columns, place, _GAP, self.glyphs.ellipsis, role)
        return [(lead, role or "text"), *pieces]

    def _fit(self) -> None:
        self._columns = fit(self.columns(), max(1, self.size.width - 1), _GAP)

    def _text(
        self, id_: str, label: str, least: int, most: int, rank: int, text: Callable[[Place], str]
    ) -> Column[Place]:
        def draw(place: Place, width: int) -> Sequence[Piece]:
            return [(self.glyphs.text(printable(text(place), 400)), "text")]

        return Column(id_, label, least, most, rank, draw, left=True)

    def _device(self, rank: int) -> Column[Place]:
        wanted = max((len(_device(place)) for place in self._rows), default=0)
        width = max(6, min(wanted, 34 if self.size.width >= 120 else 28))
        return self._text("device", "DEVICE", width, width, rank, _device)

    def _room(self, rank: int) -> list[Column[Place]]:
        def free(place: Place, width: int) -> Sequence[Piece]:
            (text, role), _ = room(self._inquiry, place.device, self.glyphs)
            return [(text or self.glyphs.not_available, role)]

        def who(place: Place, width: int) -> Sequence[Piece]:
            return [room(self._inquiry, place.device, self.glyphs, "")[1]]

        return [
            Column("free", "FREE", 13, 13, rank, free),
            Column("who", "WHO", 8, 24, rank, who, left=True),
        ]


class LogicalTable(PlaceTable):
    """Logical to physical: what every framework calls the k-th visible device, and what it is."""

    HELP = "What every framework calls a device, and which GPU or MIG device that is."
    title = "Logical to physical"

    def places(self) -> list[Place]:
        """The visible devices, in their order."""
        return [Place(device, k) for k, device in enumerate(self._inquiry.mapping.visible or ())]

    def columns(self) -> list[Column[Place]]:
        """Names, device, place, room."""
        return [
            *(self._named(*name) for name in _NAMES),
            self._device(1),
            self._text("bus", "BUS ID", 12, 12, 4, lambda place: bus_id(place.device)),
            *self._room(3),
        ]

    def empty(self) -> Iterable[Piece]:
        """Why there is no row."""
        return absent(self._inquiry.mapping)

    def state(self) -> list[Piece]:
        """How far to trust it."""
        line = self.glyphs.rule
        return [(" ", "text"), state(self._inquiry), (f" {line * 2}", "track")]

    def _named(self, framework: str, label: str, width: int, rank: int) -> Column[Place]:
        def draw(place: Place, _: int) -> Sequence[Piece]:
            return [(device_name(framework, place.logical or 0), "heading")]

        return Column(framework, label, width, width, rank, draw, left=True)


class PhysicalTable(PlaceTable):
    """Physical to logical: every GPU and MIG device, and its name or why it is hidden."""

    HELP = "Every GPU and MIG device of the machine, and what a program calls it."
    title = "Physical to logical"

    def places(self) -> list[Place]:
        """Every GPU, each followed by its MIG devices."""
        mapping = self._inquiry.mapping
        logical = {_key(device): k for k, device in enumerate(mapping.visible or ())}
        why = {_key(one.device): one.reason for one in mapping.hidden}
        if mapping.visible is None:
            why = {_key(one): "visible, which of them cannot be told"
                   for one in mapping.visible_set or ()}  # fmt: skip
        unknown = "cannot be told" if mapping.visible is None else ""
        found = []
        for gpu in self._inquiry.inventory.devices:
            parts = gpu.parts()
            if parts[0].instance:
                found.append(Place(gpu, None, "MIG mode: its parts count"))
            keys = [(part, _key(part)) for part in parts]
            found += [Place(p, logical.get(key), why.get(key, unknown)) for p, key in keys]
        return found

    def columns(self) -> list[Column[Place]]:
        """Place, logical name, room, reason."""
        return [
            self._device(0),
            Column("logical", "CUDA", 7, 7, 0, self._logical, left=True),
            self._text("bus", "BUS ID", 12, 12, 2, lambda place: bus_id(place.device)),
            *self._room(5),
            self._text("uuid", "UUID", 40, 40, 6, _uuid),
            self._text("why", "HIDDEN BECAUSE", 24, 60, 1, lambda place: place.reason),
        ]

    def _logical(self, place: Place, width: int) -> Sequence[Piece]:
        if place.logical is not None:
            return [(device_name("pytorch", place.logical), "heading")]
        return [(self.glyphs.not_available, "quiet")]


def _key(device: Device) -> tuple[object, ...]:
    return device.index, device.instance


def _device(place: Place) -> str:
    device = place.device
    if device.instance is None:
        return f"{device.label:<6} {short_name(device.name)}"
    one = device.instance
    return f"GPU {device.index} MIG {one.gi}/{one.ci} {one.profile or ''}"


def _uuid(place: Place) -> str:
    return (place.device.mig_uuid if place.device.instance else place.device.uuid) or ""
