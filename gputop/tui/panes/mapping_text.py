"""What the screen says about a mapping, in lines of pieces."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.cuda.enumeration import CERTAINTY_WORDS
from gputop.model.cuda.frameworks import Layers, layer_lines
from gputop.model.cuda.mapping import Mapping, hidden_by_reason, unnamed
from gputop.model.cuda.mapping_query import by_level, reasons
from gputop.model.cuda.pick import GpuPick
from gputop.model.cuda.pick_mig import export_line
from gputop.model.health.free import free_slices
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Piece, StyledLine
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.themes import LEVEL_ROLES

_CERTAINTY_ROLES = {"exact": "good", "expected": "text", "predicted": "notice", "unknown": "alarm"}
_EVIDENCE_ROLES = {"contradicted": "alarm", "ambiguous": "notice", "inferred": "notice",
                   "unread": "quiet"}  # fmt: skip


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


def errors(state: MappingState, glyphs: GlyphSet) -> Iterator[StyledLine]:
    """Return what is wrong, a line for each: it comes before all else."""
    for hint in state.advice:
        if hint.level == "error":
            yield _line(glyphs, f"{glyphs.warning} error: ", "alarm", hint.text, "text")


def _line(glyphs: GlyphSet, mark: str, mark_role: str, text: str, role: str) -> StyledLine:
    return [(f"  {mark}", mark_role), (glyphs.text(printable(text, 400)), role)]


def remarks(state: MappingState, glyphs: GlyphSet) -> Iterator[StyledLine]:
    """Return the remarks other than errors: a line with a mark and a sentence for each, the most
    important first."""
    for remark in _remarks(state, glyphs):
        yield _line(glyphs, *remark)


def _remarks(state: MappingState, glyphs: GlyphSet) -> Iterator[tuple[str, str, str, str]]:
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


def hidden(mapping: Mapping, glyphs: GlyphSet) -> Iterator[StyledLine]:
    """Return the hidden devices, a line for each reason."""
    for reason, devices in hidden_by_reason(mapping).items():
        gpus = ", ".join(str(device.index) for device in devices if not device.instance)
        labels = [f"GPU {gpus}"] if gpus else []
        labels += [device.label for device in devices if device.instance]
        names = glyphs.text(", ".join(labels))
        text = glyphs.text(printable(reason, 300))
        yield [(f"  hidden: {names}", "text"), (f" ({text})", "quiet")]


def suggestion(state: MappingState, offer: str | None, glyphs: GlyphSet) -> StyledLine:
    """Return the GPU or MIG device that `gputop free` would take, or why there is none."""
    pick, frame = state.pick(), state.frame
    if pick is None or frame is None:
        return []
    if not pick.gpus:
        return _why_none(frame, pick, glyphs)
    offered, tail = (offer or "").rpartition(",")[2], ""
    if offered and offered in pick.uuids[:1]:
        tail = "  (Tab takes its UUID)"
    elif offered and offered == state.result.ranks.get(pick.gpus[0].index):
        tail = f"  (Tab takes {offered})"
    shell = glyphs.text(printable(export_line(frame, pick, state.own.order)))
    count = f" ({free_slices(frame).words})" if pick.slices else ""
    line = f"GPU {pick.numbers[0]}{count}  {shell}"
    return [("  free: ", "good"), (line, "text"), (tail, "quiet")]


def _why_none(frame: Frame, pick: GpuPick, glyphs: GlyphSet) -> StyledLine:
    reasons: dict[str, list[str]] = {}
    kind = "slice" if pick.slice_reasons else "GPU"
    for number, reason in (pick.slice_reasons or pick.reasons).items():
        reasons.setdefault(printable(reason, 120), []).append(str(number))
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
