"""The lines of a mapping: in one line, and a line for each device with the remarks on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.frameworks import MAIN, device_name
from gputop.model.cuda.mapping import bus_id
from gputop.model.cuda.mapping_query import by_level, who_is_on
from gputop.model.health.free import not_free
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import GIB, printable, short_name, three_digits
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import crop_or_pad, cut
from gputop.tui.panes.lines import Piece, StyledLine, spread, width_of
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.mapping_text import (
    certainty,
    errors,
    hidden,
    remarks,
    suggestion,
    variable,
    without_devices,
)
from gputop.tui.panes.paper import Paper
from gputop.tui.themes import LEVEL_ROLES

_WIDE = 100
"""From this width on, in cells, there is room for bus ids."""


def occupancy(
    state: MappingState, device: CudaDevice, glyphs: GlyphSet, verb: str = "used by "
) -> tuple[Piece, Piece]:
    """Return how much of a device's memory is unused, and who is on it, or whether it is free."""
    usage = state.inventory.usage_of(device)
    unused = ("", "quiet")
    if usage.memory_free is not None:
        unused = (f"{three_digits(usage.memory_free / GIB)} GiB unused", "text")
    frame, inventory = state.other_users
    who = who_is_on(frame, inventory, device) if frame else ()
    own = state.followed.mapping.on if state.followed else ()
    also = "also " if verb and device.index in own else ""
    users = f"{also}{verb}{glyphs.text(' '.join(who))}" if who else ""
    if inventory.usage_of(device).is_full:
        return unused, (f"{glyphs.warning} full{': ' * bool(users)}{users}", "alarm")
    if users or frame is None or device.index in own:
        return unused, (users, "notice")
    return unused, _state(frame, device)


def _state(frame: Frame, device: CudaDevice) -> Piece:
    """Return whether a device without known users is free, or why it is not."""
    gpu = next((gpu for gpu in frame.gpus if gpu.index == device.index), None)
    if gpu is None:
        return "", "quiet"
    part = next(
        (part for part in gpu.mig or () if (gpu.index, *part.instance_ids) == device.id), None
    )
    objection = not_free(frame, gpu, part)
    return ("free", "good") if objection is None else (objection.short, "notice")


def mapping_line(state: MappingState, paper: Paper) -> StyledLine:
    """Return a rule with the variable, its devices, how to edit it, the number of hints, and the
    certainty."""
    glyphs, width = paper.glyphs, paper.width
    rule = glyphs.rule
    fill = (rule, "quiet")
    name = cut(glyphs.text(variable(state)), width * 3 // 5, glyphs.ellipsis)
    left: StyledLine = [(f"{rule} ", "track"), (f"{name}: ", "heading"), *_names(state, glyphs)]
    if state.mapping.order is not None:
        order = glyphs.text(printable(state.mapping.order, 14))
        left[1:2] = [(f"{name} ", "heading"), (f"({order}): ", "text")]
    hint, right = _right(state, glyphs)
    if width_of([*hint, *right]) <= width - width_of(left) - 1:
        right = [*hint, *right]
    spare = max(0, width - width_of(right) - 1)
    left = crop_or_pad(left, min(spare, width_of(left)), glyphs.ellipsis, left=True)
    return spread([*left, (" ", "track")], right, width, fill)


def _right(state: MappingState, glyphs: GlyphSet) -> tuple[StyledLine, StyledLine]:
    rule, advice = glyphs.rule, by_level(state.advice)
    right: StyledLine = [(f"{rule} ", "track"), certainty(state), (f" {rule}", "track")]
    if advice:
        words = (f"{glyphs.warning} {len(advice)}", LEVEL_ROLES[advice[0].level])
        right = [(f"{rule} ", "track"), words, (f" {rule}", "track"), *right]
    hint: StyledLine = [(f"{rule} ", "track"), ("m", "key"), (" to try a value", "quiet")]
    return [*hint, (f" {rule}", "track")], right


def _names(state: MappingState, glyphs: GlyphSet) -> StyledLine:
    """Return which GPU is cuda:0 and so on; only first and last if their indices count up."""
    mapping = state.mapping
    if state.frame is None:
        return []
    if mapping.visible is None:
        return [("unknown which GPUs" if mapping.count is None else
                 f"{mapping.count} visible", "text")]  # fmt: skip
    if not mapping.visible:
        return [("no GPU is visible", "alarm")]
    names = [f"{device_name('pytorch', k)} = {glyphs.text(device.label)}"
             for k, device in enumerate(mapping.visible)]  # fmt: skip
    if _in_a_row(mapping.visible):
        return [(f"{names[0]} {glyphs.ellipsis} {names[-1]}", "text")]
    pieces: StyledLine = []
    for name, device in zip(names, mapping.visible, strict=True):
        pieces.append((f"{', ' if pieces else ''}{name}", "text"))
        if occupancy(state, device, glyphs)[1][1] == "alarm":
            pieces.append((" (full)", "alarm"))
    return pieces


def _in_a_row(devices: Sequence[CudaDevice]) -> bool:
    """Return whether the devices are three or more GPUs with indices that count up by one."""
    first = devices[0].index
    counted = all(
        device.index == first + k and device.instance is None for k, device in enumerate(devices)
    )
    return counted and len(devices) > 2


def result_lines(
    state: MappingState, paper: Paper, offer: str | None, with_devices: bool = True
) -> Iterator[StyledLine]:
    """Yield what is wrong, the devices, and the remarks; `offer` is the completion that the editor
    suggests. Where tables have the devices, it is without them."""
    mapping, glyphs = state.mapping, paper.glyphs
    if state.frame is None:
        return
    for line in errors(state, glyphs):
        yield from _wrapped(line, paper.width)
    if with_devices:
        for k, device in enumerate(mapping.visible or ()):
            yield _device(state, paper, k, device)
        yield from _wrapped(without_devices(mapping), paper.width)
    for line in remarks(state, glyphs):
        yield from _wrapped(line, paper.width)
    if with_devices:
        yield from hidden(mapping, glyphs)
    if state.followed is None:
        yield from _wrapped(suggestion(state, offer, glyphs), paper.width)


def _device(state: MappingState, paper: Paper, k: int, device: CudaDevice) -> StyledLine:
    glyphs = paper.glyphs
    torch, tensorflow = (device_name(framework, k) for framework in MAIN)
    bus = f"{bus_id(device)}  " if paper.width >= _WIDE else ""
    name = "" if device.instance else f" {short_name(device.name)}"
    line: StyledLine = [
        (f"  {torch:<8} {tensorflow:<15} ", "heading"),
        (f"{glyphs.to}  ", "quiet"),
        (f"{glyphs.text(f'{device.label:<6}{name}')}  {bus}", "text"),
    ]
    (unused, role), who = occupancy(state, device, glyphs)
    if not unused:
        unknown = "" if device.instance else "unused memory is not known  "
        return [*line, (unknown, "quiet"), who]
    return [*line, (f"{unused:>15}  ", role), who]


def shell_line(state: MappingState, paper: Paper, span: tuple[int, int, int]) -> Sequence[Piece]:
    """Return the line for a shell, or why there is none. `span`: the first and the last line of the
    result in sight, counted from 1, and how many there are."""
    export = state.export
    whole = paper.glyphs.text(printable(export or state.why_no_export))
    text = cut(whole, paper.width - 2, paper.glyphs.ellipsis)
    first, last, count = span
    more = f" {first}-{last} of {count} " if last - first + 1 < count else ""
    left = [("  ", "text"), (text, "key" if export else "notice")]
    return spread(left, [(more, "quiet")], paper.width)


def _wrapped(line: StyledLine, width: int) -> Iterator[StyledLine]:
    """Break a mark and a sentence into as many lines as the sentence takes; further pieces of the
    line come after it."""
    if line:
        (mark, mark_role), (text, role), *rest = line
        parts = wrap(text, max(20, width - len(mark) - width_of(rest) - 1)) or [""]
        for n, part in enumerate(parts):
            lead = ("    ", "text") if n else (mark, mark_role)
            yield [lead, (part, role), *(rest if n == len(parts) - 1 else ())]
