"""What there is to say of a mapping, in lines of pieces."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.enumeration import Device
from gputop.model.question import by_severity, name_of, reasons
from gputop.model.selections import Layers, layer_lines
from gputop.model.text import printable
from gputop.model.visibility import Mapping
from gputop.tui.glyphs import Glyphs
from gputop.tui.inquiry import Inquiry
from gputop.tui.widgets.lines import Piece

_CERTAINTY_ROLES = {"exact": "good", "expected": "text", "predicted": "notice", "unknown": "alarm"}
_EVIDENCE_ROLES = {"contradicted": "alarm", "ambiguous": "notice", "inferred": "notice",
                   "unread": "quiet"}  # fmt: skip
SEVERITY_ROLES = {"error": "alarm", "warning": "notice", "info": "quiet"}
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
        yield line(f"{mark} {one.severity}: ", SEVERITY_ROLES[one.severity], one.message)
    said = any(entry.message == mapping.because for entry in mapping.entries)
    said |= inquiry.followed is not None and inquiry.followed.mapping.unread is not None
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
