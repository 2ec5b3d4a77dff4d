"""What the screen says about a mapping: in one line, and in a line for each device and remark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.model.cuda.enumeration import CERTAINTY_WORDS, CudaDevice
from gputop.model.cuda.frameworks import MAIN, Layers, device_name, layer_lines
from gputop.model.cuda.mapping import Mapping, bus_id, hidden_by_reason, unnamed
from gputop.model.cuda.mapping_query import by_level, reasons, who_is_on
from gputop.model.cuda.pick import GpuPick, export_line
from gputop.model.health.free import free_slices, not_free
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import parts_of
from gputop.model.machine.text import GIB, printable, short_name, three_digits
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import crop_or_pad, cut
from gputop.tui.panes.lines import Piece, StyledLine, spread, width_of
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.paper import Paper
from gputop.tui.themes import LEVEL_ROLES

_WIDE = 100
"""From this width on, in cells, there is room for bus ids."""
_CERTAINTY_ROLES = {"exact": "good", "expected": "text", "predicted": "notice", "unknown": "alarm"}
_EVIDENCE_ROLES = {"contradicted": "alarm", "ambiguous": "notice", "inferred": "notice",
                   "unread": "quiet"}  # fmt: skip


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
    parts = parts_of(gpu for gpu in frame.gpus if gpu.index == device.index)
    part = next((part for part in parts if part.id == device.id), None)
    if part is None:
        return "", "quiet"
    objection = not_free(frame, part.gpu, part.device)
    return ("free", "good") if objection is None else (objection.short, "notice")


def mapping_line(state: MappingState, paper: Paper) -> StyledLine:
    """Return a rule with the variable, its devices, how to edit it, the number of hints, and the
    certainty."""
    glyphs, width = paper.glyphs, paper.width
    rule = glyphs.rule
    name = cut(glyphs.text(variable(state)), width * 3 // 5, glyphs.ellipsis)
    left: StyledLine = [(f"{rule} ", "track"), (f"{name}: ", "heading"), *_names(state, glyphs)]
    if state.mapping.order is not None:
        order = glyphs.text(printable(state.mapping.order, 14))
        left[1:2] = [(f"{name} ", "heading"), (f"({order}): ", "text")]
    hint, right = _right(state, glyphs)
    if width_of([*hint, *right]) <= width - width_of(left) - 1:
        right = [*hint, *right]
    return ruled(left, right, paper)


def ruled(left: StyledLine, right: StyledLine, paper: Paper) -> StyledLine:
    """Put pieces at both ends of a rule; those at the left are cut if there is no room."""
    spare = max(0, paper.width - width_of(right) - 1)
    left = crop_or_pad(left, min(spare, width_of(left)), paper.glyphs.ellipsis)
    return spread([*left, (" ", "track")], right, paper.width, (paper.glyphs.rule, "quiet"))


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
    for hint in state.advice:
        if hint.level == "error":
            lead = (f"  {glyphs.warning} error: ", "alarm")
            yield from paper.led(lead, printable(hint.text, 400), indent=4)
    if with_devices:
        for k, device in enumerate(mapping.visible or ()):
            yield _device(state, paper, k, device)
        yield from _wrapped(without_devices(mapping), paper)
    for mark, mark_role, text, role in _remarks(state, glyphs):
        yield from paper.led((f"  {mark}", mark_role), printable(text, 400), role, indent=4)
    if with_devices:
        yield from _hidden(mapping, glyphs)
    if state.followed is None:
        yield from _wrapped(_suggestion(state, offer, glyphs), paper)


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


def _wrapped(line: StyledLine, paper: Paper) -> Iterator[StyledLine]:
    """Break a mark and a sentence into as many lines as the sentence takes; further pieces of the
    line come after it."""
    if line:
        mark, (text, role), *rest = line
        beside = paper._replace(width=paper.width - width_of(rest))
        *lines, last = beside.led(mark, text, role, indent=4)
        yield from (*lines, [*last, *rest])


def certainty(state: MappingState) -> Piece:
    """Return how far the result can be trusted, or what the driver says of it."""
    mapping, answer = state.mapping, state.probe_result
    if state.followed is not None:
        kind = state.followed.mapping.evidence.kind
        if kind in _EVIDENCE_ROLES:
            return kind, _EVIDENCE_ROLES[kind]
    elif state.is_asking:
        return "asking the driver...", "notice"
    elif answer is not None and answer.ok is not None:
        return (answer.reason, "good") if answer.ok else ("the driver disagrees", "alarm")
    if not mapping.documented:
        return "not documented", "notice"
    return CERTAINTY_WORDS[mapping.certainty], _CERTAINTY_ROLES[mapping.certainty]


def variable(state: MappingState) -> str:
    """Return the variable as it is set, harmless to print; a process's label comes first."""
    followed = state.followed
    value = setting("CUDA_VISIBLE_DEVICES", state.mapping.value, 256)
    if followed is not None:
        return f"{followed.label} {followed.mapping.unread or value}"
    return value if state.result.unknown is None else "Pasted text"


def setting(name: str, value: str | None, max_length: int) -> str:
    """Return a variable as it is set, harmless to print."""
    return f"{name} is unset" if value is None else f"{name}={printable(value, max_length)}"


def without_devices(mapping: Mapping) -> StyledLine:
    """Return a line that says why no device has a name; empty if one has."""
    text = unnamed(mapping)
    role = "notice" if mapping.visible is None else "alarm"
    return [("  ", "text"), (text, role)] if text else []


def _remarks(state: MappingState, glyphs: GlyphSet) -> Iterator[tuple[str, str, str, str]]:
    """Yield the remarks other than errors, the most important first: a mark and a sentence, each
    with its role."""
    result, followed, advice = state.result, state.followed, by_level(state.advice)
    answer = state.probe_result and (result.contradiction or state.probe_result)
    if answer is not None and not answer.ok:
        role = "notice" if answer.ok is None else "alarm"
        yield f"{glyphs.warning} ", role, answer.reason, role
    if followed is not None:
        for sentence in (followed.mapping.evidence.because, followed.mapping.reach):
            if sentence:
                yield "", "text", sentence, "text"
    else:
        for reason in reasons(result, advice):
            yield f"{glyphs.warning} ", "alarm", reason, "text"
    for hint in (hint for hint in advice if hint.level != "error"):
        mark = glyphs.separator if hint.level == "info" else glyphs.warning
        yield f"{mark} {hint.level}: ", LEVEL_ROLES[hint.level], hint.text, "text"
    if not _is_explained(state):
        yield "", "text", state.mapping.because, "quiet"
    layers = Layers() if followed else state.query.layers
    for text in layer_lines(state.mapping, state.inventory, layers):
        if not any(finding.text in text for finding in result.request_advice):
            yield "", "text", text, "text"


def _is_explained(state: MappingState) -> bool:
    """Return whether the certainty needs no reason, or has one elsewhere."""
    mapping, followed = state.mapping, state.followed
    if mapping.visible is not None and mapping.certainty != "expected":
        return True
    if followed is not None and followed.mapping.explained:
        return True
    return any(entry.message == mapping.because for entry in mapping.entries)


def _hidden(mapping: Mapping, glyphs: GlyphSet) -> Iterator[StyledLine]:
    """Return the hidden devices, a line for each reason."""
    for reason, devices in hidden_by_reason(mapping).items():
        gpus = ", ".join(str(device.index) for device in devices if not device.instance)
        labels = [f"GPU {gpus}"] if gpus else []
        labels += [device.label for device in devices if device.instance]
        names = glyphs.text(", ".join(labels))
        text = glyphs.text(printable(reason, 300))
        yield [(f"  hidden: {names}", "text"), (f" ({text})", "quiet")]


def _suggestion(state: MappingState, offer: str | None, glyphs: GlyphSet) -> StyledLine:
    """Return the GPU or MIG device that `gputop free` would take, or why there is none."""
    pick, frame = state.pick(), state.frame
    if pick is None or frame is None:
        return []
    if not pick.gpus or not pick.parts:
        return _why_none(frame, pick, glyphs)
    offered, tail = (offer or "").rpartition(",")[2], ""
    if offered and offered in pick.uuids[:1]:
        tail = "  (Tab takes its UUID)"
    elif offered and offered == state.result.ranks.get(pick.gpus[0].index):
        tail = f"  (Tab takes {offered})"
    shell = glyphs.text(printable(export_line(frame, pick.parts, state.own.order)))
    count = f" ({free_slices(frame).words})" if pick.of_slices else ""
    line = f"GPU {pick.numbers[0]}{count}  {shell}"
    return [("  free: ", "good"), (line, "text"), (tail, "quiet")]


def _why_none(frame: Frame, pick: GpuPick, glyphs: GlyphSet) -> StyledLine:
    reasons: dict[str, list[str]] = {}
    kind = "slice" if pick.of_slices else "GPU"
    for number, reason in pick.reasons.items():
        if (":" in number) == pick.of_slices:
            reasons.setdefault(printable(reason, 120), []).append(number)
    words = [f"GPU {', '.join(numbers)}: {reason}" for reason, numbers in reasons.items()]
    because = f" ({glyphs.text('; '.join(words))})" if words else ""
    text, slices = f"no {kind} is free", free_slices(frame)
    if pick.free is None:
        text = f"no {kind} is known to be free"
    elif pick.free:
        text = f"none of the {pick.free} free {kind}s can be taken"
    elif slices.free and kind == "GPU":
        text = f"no GPU is free, but {slices.words}"
    return [(f"  {text}", "notice"), (because, "quiet")]
