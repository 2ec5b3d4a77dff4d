"""What a CUDA_VISIBLE_DEVICES value means on this machine, in lines, as it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from gputop.model.enumeration import Device
from gputop.model.frame import Frame
from gputop.model.frameworks import MAIN, device_name
from gputop.model.question import by_severity, name_of, reasons, who_is_on
from gputop.model.selections import Layers, layer_lines
from gputop.model.text import GIB, printable, short_name, three_digits
from gputop.model.visibility import Mapping, normalize_bus_id
from gputop.tui.glyphs import Glyphs
from gputop.tui.inquiry import Inquiry
from gputop.tui.widgets.columns import cut, sized
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of
from gputop.tui.widgets.table import Table

_LITTLE_FREE = 0.05
_WIDE = 100
"""Cells from which there is room for bus ids."""
_CERTAINTY_ROLES = {"exact": "good", "expected": "text", "predicted": "notice", "unknown": "alarm"}
_EVIDENCE_ROLES = {"contradicted": "alarm", "ambiguous": "notice", "inferred": "notice",
                   "unread": "quiet"}  # fmt: skip
_SEVERITY_ROLES = {"error": "alarm", "warning": "notice", "info": "quiet"}
Line = list[Piece]


def certainty(mapping: Mapping) -> Piece:
    """How far the answer can be trusted, in a word."""
    if not mapping.documented:
        return "not documented", "notice"
    return mapping.certainty, _CERTAINTY_ROLES[mapping.certainty]


def state(inquiry: Inquiry) -> Piece:
    """How far the answer can be trusted, and what the driver says of it."""
    verdict = inquiry.verdict
    if inquiry.followed is not None:
        kind = inquiry.followed.mapping.evidence.kind
        role = _EVIDENCE_ROLES.get(kind)
        return certainty(inquiry.mapping) if role is None else (kind, role)
    if inquiry.asking:
        return "asking the driver...", "notice"
    if verdict is not None and verdict.ok:
        return verdict.reason, "good"
    if verdict is not None and verdict.ok is False:
        return "the driver disagrees", "alarm"
    return certainty(inquiry.mapping)


def variable(inquiry: Inquiry) -> str:
    """The variable as it is set, harmless to print; of a process, whose it is."""
    mapping, followed = inquiry.mapping, inquiry.followed
    if followed is not None and followed.mapping.unread:
        return f"{followed.label} {followed.mapping.unread}"
    return f"{followed.label if followed else ''} {_value(mapping)}".lstrip()


def _value(mapping: Mapping) -> str:
    if mapping.value is None:
        return "CUDA_VISIBLE_DEVICES is unset"
    return f"CUDA_VISIBLE_DEVICES={printable(mapping.value, 256)}"


def order_text(mapping: Mapping) -> str:
    """The other variable."""
    if mapping.order is None:
        return "CUDA_DEVICE_ORDER is unset"
    return f"CUDA_DEVICE_ORDER={printable(mapping.order, 64)}"


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


def unordered(mapping: Mapping) -> str:
    """What is known where no GPU has a name."""
    if mapping.count is None:
        return "which GPUs are visible cannot be told"
    names = ", ".join(device.label for device in mapping.visible_set or ())
    which = f": {names}" if names else ""
    plural = "s are" if mapping.count != 1 else " is"
    return f"{mapping.count} GPU{plural} visible{which}; which is cuda:0 cannot be told"


def absent(mapping: Mapping) -> Line:
    """What stands where no device has a name; nothing where one has."""
    if mapping.visible is None:
        return [("  ", "text"), (unordered(mapping), "notice")]
    return [] if mapping.visible else [("  ", "text"), ("no GPU is visible", "alarm")]


def summed_up(inquiry: Inquiry, glyphs: Glyphs) -> Iterator[Line]:
    """What there is to say besides the devices, what matters most first."""
    mapping = inquiry.mapping
    verdict = inquiry.verdict and (inquiry.answer.surprise or inquiry.verdict)

    def line(mark: str, role: str, text: str, quiet: bool = False) -> Line:
        words = glyphs.text(printable(text, 400))
        return [(f"  {mark}", role), (words, "quiet" if quiet else "text")]

    if verdict is not None and not verdict.ok:
        role = "notice" if verdict.ok is None else "alarm"
        words = glyphs.text(printable(verdict.reason, 400))
        yield [(f"  {glyphs.warning} ", role), (words, role)]
    advice = by_severity(inquiry.advice)
    if inquiry.followed is not None:
        process = inquiry.followed.mapping
        yield from (
            line("", "text", one) for one in (process.evidence.because, process.reach) if one
        )
    for message in reasons(inquiry.answer, advice) if inquiry.followed is None else ():
        yield line(f"{glyphs.warning} ", "alarm", message)
    for one in advice:
        mark = glyphs.separator if one.severity == "info" else glyphs.warning
        yield line(f"{mark} {one.severity}: ", _SEVERITY_ROLES[one.severity], one.message)
    said = any(entry.message == mapping.because for entry in mapping.entries)
    if not said and (mapping.visible is None or mapping.certainty == "expected"):
        yield line("", "text", mapping.because, quiet=True)
    layers = Layers() if inquiry.followed else inquiry.question.layers
    for text in layer_lines(mapping, inquiry.inventory, layers):
        if not any(one.message in text for one in inquiry.answer.missed):
            yield line("", "text", text)


def hidden(mapping: Mapping, glyphs: Glyphs) -> Iterator[Line]:
    """One line for each reason."""
    reasons: dict[str, list[Device]] = {}
    for one in mapping.hidden:
        reasons.setdefault(one.reason, []).append(one.device)
    for reason, devices in reasons.items():
        gpus = ", ".join(str(device.index) for device in devices if not device.instance)
        labels = [f"GPU {gpus}"] if gpus else []
        labels += [device.label for device in devices if device.instance]
        names = glyphs.text(", ".join(labels))
        text = glyphs.text(printable(reason, 300))
        yield [(f"  hidden: {names}", "text"), (f" ({text})", "quiet")]


def suggestion(inquiry: Inquiry, offer: str | None, glyphs: Glyphs) -> Iterator[Line]:
    """The GPU that `gputop free` would take, or why there is none."""
    choice = inquiry.choice
    if choice is None:
        return
    if choice.gpus:
        gpu = choice.gpus[0]
        name, offered = name_of(gpu, inquiry.answer), (offer or "").rpartition(",")[2]
        takes = offered in (name, gpu.uuid, inquiry.answer.ranks.get(gpu.index))
        name = offered if takes else name
        index = "" if name == str(gpu.index) else f"GPU {gpu.index} as "
        tail = " (Tab takes it)" if takes else ""
        which = f"{index}{glyphs.text(printable(name))}"
        yield [("  free: ", "good"), (which, "text"), (tail, "quiet")]
        return
    why: dict[str, list[int]] = {}
    for place, reason in choice.reasons.items():
        why.setdefault(printable(reason, 120), []).append(place)
    words = [f"GPU {', '.join(map(str, places))}: {reason}" for reason, places in why.items()]
    because = f" ({glyphs.text('; '.join(words))})" if words else ""
    yield [("  no GPU is free", "notice"), (because, "quiet")]


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
            right = [between, (mark, _SEVERITY_ROLES[advice[0].severity]), *right]
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
