"""The heading line and the line of keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from textual.binding import Binding, BindingType
from textual.dom import DOMNode

from gputop.model.health.findings import in_alarm
from gputop.model.health.free import count_of_free, free_words
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import GIB, clock, counted, duration, percent
from gputop.settings import Thresholds
from gputop.tui.key_names import names_of, with_arrows
from gputop.tui.panes.columns import cut
from gputop.tui.panes.gpu_cells import bar, load_role
from gputop.tui.panes.lines import Lines, Piece, spread, width_of

_NARROW, _WIDE = 60, 110
"""Widths in cells: below the first, words are few; from the second on, host loads have bars."""
_LOAD_BAR = 8
_LEAST_NEWS = 12


class HeadingLine(Lines):
    """A heading: the program, whether what is shown is old, a note, then as many facts as fit."""

    note = ""
    """A note that comes before the facts."""

    def on_mount(self) -> None:
        watch_status(self)

    def start(self) -> list[Piece]:
        """Return the pieces that come before any fact."""
        pieces: list[Piece] = [(" gputop  ", "heading"), *status_pieces(self)]
        return [*pieces, (f"{self.note}  ", "notice")] if self.note else pieces

    def filled(
        self,
        left: Sequence[Piece],
        facts: Iterable[Sequence[Piece]],
        last: str,
        right: Sequence[Piece],
        spare: int = 0,
    ) -> list[Piece]:
        """Return the line with as many facts as fit beside `spare` free cells, and with `last` if
        there is room for it after all of them."""
        shown, width = list(left), self.size.width
        room = width - width_of([*left, *right]) - spare
        for fact in facts:
            room -= width_of(fact)
            if room < 0:
                break
            shown += fact
        else:
            if len(last) <= room:
                right = [(last, "quiet"), *right]
        return spread(shown, right, width)


class Heading(HeadingLine):
    """The machine in one line: name, how many GPUs are free, the host's loads, the time."""

    waiting = "waiting for the driver"
    """Shown until there is a frame."""
    as_root = False
    """Whether the user may signal every process of the machine."""
    news = ""
    """Shown after the note: what the user has waited for."""

    def __init__(self, thresholds: Thresholds) -> None:
        super().__init__()
        self._thresholds = thresholds
        self._frame: Frame | None = None
        self._interval = 1.0

    def show_frame(self, frame: Frame | None, interval: float) -> None:
        self._frame, self._interval = frame, interval
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the facts that fit; as the line gets shorter, it loses them from the right."""
        frame = self._frame
        right, left = self._when(frame), self.start()
        if frame is None:
            return self.filled([*left, (self.glyphs.text(self.waiting), "quiet")], (), "", right)
        if frame.demo:
            wide = self.size.width >= 110 and frame.host.requested_name is None
            left.append(("DEMO, an invented machine" if wide else "DEMO", "notice"))
            left.append(("  " * (frame.host.requested_name is not None), "text"))
        if not frame.demo or frame.host.requested_name is not None:
            # A machine's own name for itself may also be that of another machine.
            host = self.glyphs.text(frame.host.requested_name or frame.host.name)
            left.append((cut(host, max(12, self.size.width // 3), self.glyphs.ellipsis), "text"))
        if self.as_root and not frame.demo and not getattr(self.app, "instant", ""):
            left.append((" as root", "notice"))
        driver, cuda = (
            version or self.glyphs.not_available
            for version in (frame.driver_version, frame.cuda_version)
        )
        versions = f"driver {driver} {self.glyphs.separator} CUDA {cuda}  "
        return self.filled(left, self._facts(frame), versions, right, spare=1)

    def _when(self, frame: Frame | None) -> list[Piece]:
        """Return the time of the frame, unless the state shows it already, and the interval."""
        pieces: list[Piece] = []
        if frame is not None and self.size.width >= _NARROW:
            time = f" {clock(frame.time)}"
            if time not in getattr(self.app, "instant", ""):
                pieces.append((time, "text"))
        return [*pieces, (f"  {self._interval:g}s ", "quiet")]

    def start(self) -> list[Piece]:
        pieces = super().start()
        if self.news:
            room = max(_LEAST_NEWS, self.size.width * 2 // 3 - width_of(pieces))
            news = cut(self.glyphs.text(self.news), room, self.glyphs.ellipsis)
            pieces.append((f"{news}  ", "notice"))
        return pieces

    def _facts(self, frame: Frame) -> Iterable[list[Piece]]:
        between: Piece = (f" {self.glyphs.separator} ", "quiet")
        if alarms := len(in_alarm(frame)):
            yield [between, (f"{counted(alarms, 'alarm')} (H)", "alarm")]
        total, free = len(frame.gpus), free_words(frame)
        role = "text" if all(words.startswith("0 ") for words in free) else "good"
        if not free:
            yield [between, (counted(total, "GPU"), "text")]
        elif self.size.width < _NARROW and free == [f"{count_of_free(frame)} free"]:
            yield [between, (f"{count_of_free(frame)} of {total} free", role)]
        else:
            yield [between, (f"{counted(total, 'GPU')}, ", "text"), (", ".join(free), role)]
        yield [between, (summary.count_of_users(frame), "text")]
        host = frame.host
        if host.cpu is not None:
            yield [between, *self._load("CPU", f"{percent(host.cpu)}%", host.cpu)]
        if host.memory_used is not None and host.memory_total:
            share = host.memory_used / host.memory_total
            words = f"{_gibibytes(host.memory_used)}/{_gibibytes(host.memory_total)}G"
            yield [("  ", "text"), *self._load("RAM", words, share)]

    def _load(self, label: str, words: str, share: float) -> list[Piece]:
        role = load_role(share, self._thresholds)
        pieces: list[Piece] = [(f"{label} ", "quiet"), (words, role)]
        if self.size.width < _WIDE:
            return pieces
        return [*pieces, (" ", "text"), *bar(min(share, 1.0), _LOAD_BAR, role)]


def _gibibytes(count: int) -> str:
    return f"{count / GIB:.1f}" if count < 100 * GIB else f"{count / GIB:.0f}"


def paused(age: int) -> str:
    """Return how a heading names a pause whose picture is `age` seconds old."""
    return f"PAUSED, {duration(age)} old" if age > 0 else "PAUSED"


def status_pieces(line: Lines) -> list[Piece]:
    """Return notes on what is shown, if paused or old, and on an agent that does not answer."""
    instant, silence = getattr(line.app, "instant", ""), getattr(line.app, "silence", 0)
    pieces: list[Piece] = [(f"{instant}  ", "notice")] if instant else []
    return [*pieces, (f"no answer for {silence} s  ", "alarm")] if silence else pieces


def watch_status(line: Lines) -> None:
    """Redraw a line whenever what `status_pieces` returns may have changed."""
    for name in ("silence", "instant"):
        if hasattr(line.app, name):
            line.watch(line.app, name, lambda: line.repaint_changed())


def described_key(
    group: str, keys: str, action: str, description: str, tooltip: str, label: str = "",
    *, area: str, name: str = "", priority: bool = False,
) -> Binding:  # fmt: skip
    """Return a binding with its words for help, the palette and, if it has a label, the line of
    keys. Its id is `area.name`; the name of the action is the default of `name`."""
    return Binding(
        keys, action, description, tooltip=tooltip, id=f"{area}.{name or action.partition('(')[0]}",
        show=bool(label), key_display=label or None, group=Binding.Group(group), priority=priority,
    )  # fmt: skip


def works(node: DOMNode, binding: Binding) -> bool:
    """Return whether a key of a screen or of the app does something there now."""
    action = binding.action.partition("(")[0]
    owner = node.app if action.startswith("app.") else node
    return bool(owner.check_action(action.removeprefix("app."), ()))


def key_words(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    return [
        (
            binding.key_display or names_of(binding.key.split(","), Lines.glyphs, room=0),
            binding.description.lower(),
        )
        for binding in bindings
        if isinstance(binding, Binding) and binding.show
    ]


class KeyLabel(Lines):
    """A key and what it is for, before the field that it has opened."""

    def __init__(self, key: str, word: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._key, self._word = key, word

    def pieces(self, y: int) -> Iterable[Piece]:
        return [(" ", "text"), (self._key, "key"), (f" {self._word}  ", "quiet")]


class KeyLine(Lines):
    """What the keys do: as many as fit; the needed ones are the last to be left out."""

    def __init__(
        self,
        keys: Iterable[tuple[str, str]],
        needed: Collection[str] = (),
        *,
        with_notes: bool = False,
    ) -> None:
        """`needed` are words that stay on a narrow screen when others give way; `with_notes`: it
        begins with the passing note, as the last line of a screen does."""
        super().__init__()
        self._needed, self._with_notes = needed, with_notes
        self.show(keys)

    def on_mount(self) -> None:
        if self._with_notes and hasattr(self.app, "note"):
            self.watch(self.app, "note", lambda: self.repaint_changed())

    def show(self, keys: Iterable[tuple[str, str]]) -> None:
        self._keys = [(with_arrows(key, self.glyphs), word) for key, word in keys]
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        pieces = self._state()
        room = self.size.width - width_of(pieces)
        for key, word in self._fitting(room):
            pieces += [(key, "key"), (f" {word}  ", "quiet")]
        return pieces

    def _fitting(self, room: int) -> list[tuple[str, str]]:
        """Return the keys that fit, in their order; the last needs no blanks after it."""
        fitting: list[int] = []
        by_need = sorted(range(len(self._keys)), key=lambda n: self._keys[n][1] not in self._needed)
        for number in by_need:
            room -= sum(map(len, self._keys[number])) + 3
            if room < -2:
                break
            fitting.append(number)
        return [self._keys[number] for number in sorted(fitting)]

    def _state(self) -> list[Piece]:
        note = getattr(self.app, "note", "") if self._with_notes else ""
        return [(" ", "text"), (f"{note}  " if note else "", "notice")]


class PageKeys(KeyLine):
    """The keys of a page, which has no heading to say that it is paused."""

    def on_mount(self) -> None:
        watch_status(self)

    def _state(self) -> list[Piece]:
        return [*super()._state(), *status_pieces(self)]
