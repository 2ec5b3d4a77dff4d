"""Mistakes around CUDA_VISIBLE_DEVICES that are worth a word, and the words.

advice.py            a value on a machine (this module)
shell_line.py        what is typed in a shell or in Python
process_advice.py    the environment of a process and what the driver says of it
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gputop.model.enumeration import FASTEST_FIRST, PCI_BUS_ID, Device, shown
from gputop.model.inventory import Usage
from gputop.model.mapping import Mapping as Answer
from gputop.model.readings import kind_of
from gputop.model.text import printable

Severity = Literal["error", "warning", "info"]
_Words = tuple[str, Severity, str]

_FULL = 0.05
"""A GPU with a smaller share of its memory free is full."""
_TF_MIN_SMS = 8
"""TF_MIN_GPU_MULTIPROCESSOR_COUNT where it is not set (TensorFlow, `gpu_device.cc`)."""
_NOTHING = {"none", "no", "void", "null", "nodevfiles", "false", "off", "nil"}
_JUNK = re.compile(r"\s*[+-]?([0-9]{1,9})(?![0-9])(\S.*|\s+\S.*)", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"\s*([0-9]{1,4})\s*(-|:|~|\.\.)\s*([0-9]{1,4})\s*", re.ASCII)
_BARE_UUID = re.compile(r"\s*[0-9a-fA-F]{8}-[0-9a-fA-F-]+\s*", re.ASCII)
# cuda:2, /device:GPU:2, CUDA2, device_id=2, CudaDevice(id=2), cuda.gpus[2], torch.device("cuda", 2)
_REQUEST = re.compile(
    r"(?<![a-z_])[a-z_]*(?:cuda|gpus?|device|id)[a-z_]*[\"']?[\s(\[:=,]{0,4}([0-9]{1,9})(?![0-9.])",
    re.ASCII | re.IGNORECASE,
)

# By the reason for which a list ended; {rest} is what stays visible, {after} what does not.
_STOPS: dict[str, _Words] = {
    "empty_entry": (
        "value-empty-entry",
        "warning",
        "Empty entry{before}: CUDA stops there (not documented; both known emulations agree):"
        " {rest}.",
    ),
    "out_of_range": ("value-out-of-range", "error", "There is no GPU {text} here: {rest}."),
    "unknown_uuid": (
        "value-unknown-uuid",
        "error",
        "No GPU here has a UUID starting {text}: {rest}.",
    ),
    "ambiguous_uuid": (
        "value-ambiguous-uuid",
        "error",
        "{text} is the start of several UUIDs: CUDA stops there, {rest}. Write more digits.",
    ),
    "kind_mismatch": (
        "value-mixed-kinds",
        "error",
        "Indices, GPU UUIDs and MIG UUIDs do not mix in one list: CUDA stops at {text}, {rest}.",
    ),
    "mig_one_ci_per_gi": (
        "mig-same-gi",
        "warning",
        "Both compute instances belong to one GPU instance: CUDA uses one of them.",
    ),
    "mig_single_instance": (
        "mig-single-instance",
        "warning",
        "Drivers before R570 give a process one MIG device: {rest}.",
    ),
    "not_a_number": ("value-word", "error", "{shown} is not a number: CUDA stops there, {rest}."),
}


class Advice(msgspec.Struct, frozen=True):
    """What is wrong or easily misread, and what to do."""

    id: str
    """Names the rule; the same mistake always has the same."""
    severity: Severity
    message: str
    """For people, printable."""


def advise(answer: Answer, usage: Mapping[int, Usage] | None = None) -> tuple[Advice, ...]:
    """Say what is worth a word of a value; `usage` by NVML index."""
    found = [*_of_form(answer), *_of_entries(answer)]
    found += _of_end(answer, said=bool(found))
    found += [*_of_order(answer), *_of_gpus(answer, usage or {})]
    return tuple(Advice(id_, severity, printable(text)) for id_, severity, text in found)


def requested(name: str) -> int | None:
    """Give the k of a name such as cuda:2 or of a call with it; None where there is none."""
    match = _REQUEST.search(name[:200])
    return None if match is None else int(match[1])


def of_tensorflow(name: str) -> bool:
    """Tell whether a name is TensorFlow's: /gpu:2, /device:GPU:2."""
    return re.search("gpu:[0-9]", name, re.IGNORECASE) is not None


def request_advice(name: str, answer: Answer) -> Advice | None:
    """Say what is wrong with asking for a name such as cuda:2; None where there is such a GPU."""
    asked = requested(name)
    if asked is None or answer.count is None or asked < answer.count:
        return None
    tensorflow = of_tensorflow(name)
    stem = "/device:GPU:" if tensorflow else "cuda:"
    visible = answer.visible or ()
    names = [f"{stem}{k} ({device.label})" for k, device in enumerate(visible)]
    many = f"{answer.count or 'No'} GPU{'s are' if answer.count > 1 else ' is'} visible"
    named = f"{many}, named {' and '.join(names)}." if names else f"{many}."
    k = next((k for k, d in enumerate(visible) if d.index == asked and not d.instance), None)
    fix = "" if k is None else f" For physical GPU {asked} use {stem}{k}."
    error = "'unknown device', or another device with soft placement"
    error = error if tensorflow else "'CUDA error: invalid device ordinal'"
    message = f"{named} {stem}{asked} does not exist: {error}.{fix}"
    return Advice("request-out-of-visible", "error", message)


def rest_of(answer: Answer) -> str:
    """What is visible, as the end of a sentence."""
    if answer.count == 0:
        return "NO GPU is visible"
    if answer.visible is None:
        return "which GPUs are visible cannot be told"
    names = ", ".join(device.label for device in answer.visible)
    return f"only {names} {'is' if answer.count == 1 else 'are'} visible"


def _of_form(answer: Answer) -> Iterator[_Words]:
    """Judge the value as a text: what people write that CUDA does not understand."""
    value, rest = answer.value or "", rest_of(answer)
    plain = re.sub(r"[\s\"'\[\](){}]+", "", value)
    first = shown(value.split(",")[0])
    if value and value == plain and value.lower() in _NOTHING:
        text = "Not a documented word, but it does hide every GPU. The documented ways are an empty"
        yield "value-none", "info", f"{text} value or -1."
    elif value == "":
        text = (
            "An empty value hides every GPU. On Windows it deletes the variable: -1 works in both."
        )
        if answer.value is not None:
            yield "value-hides-all", "info", text
    elif re.search("[\"']", value):
        text = "The quotes are part of the value (set from an env file or from code): CUDA stops at"
        yield "value-quotes", "error", f"{text} {first} and {rest}. Write {plain} without quotes."
    elif re.match(r"\s*[\[({]", value):
        text = f"Brackets are not understood: CUDA stops at {first} and {rest}. Write {plain}."
        yield "value-brackets", "error", text
    for comma in (c for c in "，、" if c in value):
        text = f"'{comma}' (full-width comma) is not a separator: {rest}. Use an ASCII comma."
        yield "value-fullwidth-comma", "error", text
    if ";" in value:
        yield "value-semicolon", "error", f"';' does not separate GPUs: {rest}. Use commas."


def _of_entries(answer: Answer) -> Iterator[_Words]:
    """Judge single entries that are read otherwise than they look."""
    entries = [entry for entry in answer.entries[:64] if entry.outcome != "ignored"]
    here = len(answer.visible or ()) + len(answer.hidden)
    for entry in entries:
        text, span, junk = entry.text, _RANGE.fullmatch(entry.text), _JUNK.fullmatch(entry.text)
        if _BARE_UUID.fullmatch(text):
            words = "A UUID without GPU- is read as a number"
            yield "value-uuid-without-prefix", "error", f"{words}. Write GPU-{text.strip()}."
        elif span is not None:
            low, high = int(span[1]), min(int(span[3]), int(span[1]) + 63)
            better = ",".join(map(str, range(low, high + 1))) or "every index"
            words = f"Ranges are not supported: CUDA reads {low} and ignores"
            yield "value-range", "error", f"{words} '{span[2]}{span[3]}'. Write {better}."
        elif re.match("GPU-[0-9]{1,2}$", text) and int(text[4:]) < here:
            digits = text[4:]
            words = f"{text} is a UUID prefix, not index {digits}: it selects the GPU whose UUID"
            yield (
                "value-gpu-dash-index",
                "warning",
                f"{words} starts with {digits}. Write {digits}.",
            )
        elif junk is not None and re.match(r"\s+[0-9]", junk[2], re.A):
            words = f"Spaces do not separate GPUs: {rest_of(answer)}. Use commas."
            yield "value-spaces", "error", words
        elif junk is not None and entry.documented and junk[2].strip()[0] not in ";，、":
            words = f"CUDA reads {junk[1]} and ignores {shown(junk[2].strip())}."
            yield "value-junk", "warning", words


def _of_end(answer: Answer, *, said: bool) -> Iterator[_Words]:
    """Say where the list ended; unless its form explains that, and what is undocumented."""
    stop = answer.stopped_at
    after = [entry.text for entry in answer.entries if stop and entry.position > stop.position]
    if answer.reason == "duplicate":
        text = f"CUDA rejects the whole list and {rest_of(answer)}."
        if kind_of(answer.value or "") == "integer":
            yield "value-duplicate", "error", f"A GPU is named twice: {text}"
        else:
            yield "value-duplicate-prefix", "error", f"Both prefixes are the same GPU: {text}"
    elif answer.reason == "negative" and stop and after:
        names = ", ".join(after[:16])
        text = (
            f"{stop.entry} ends the list: {names} {'is' if len(after) == 1 else 'are'} not visible."
        )
        yield "value-hides-rest", "warning", text
    elif stop and answer.reason in _STOPS and not (said and answer.reason == "not_a_number"):
        id_, severity, template = _STOPS[answer.reason]
        before = f" after {answer.entries[stop.position - 1].text}" if stop.position else ""
        text = printable(stop.entry, 48)
        words = template.format(
            text=text, shown=shown(stop.entry), rest=rest_of(answer), before=before
        )
        yield id_, severity, words
    elif answer.reason in ("mig", "mig_abbreviated"):
        text = "On a machine with MIG this cannot be told. Name MIG devices by their whole UUIDs."
        yield "mig-unknown", "info", text
    odd = next((entry for entry in answer.entries if not entry.documented), None)
    if odd is not None and not said and answer.reason not in ("mig", "mig_one_ci_per_gi"):
        text = f"CUDA does not document how it reads {shown(odd.text)}."
        better = " Write a plain decimal index." if kind_of(odd.text) == "integer" else ""
        yield "value-uncertain", "info", text + better
    elif odd is None and not answer.documented and stop:
        text = "A GPU is named again after the end of the list: that is not documented."
        yield "value-uncertain", "info", text


def _of_order(answer: Answer) -> Iterator[_Words]:
    """Judge CUDA_DEVICE_ORDER, and its absence where it decides."""
    if answer.order not in (None, PCI_BUS_ID, FASTEST_FIRST):
        text = (
            "CUDA knows PCI_BUS_ID and FASTEST_FIRST; anything else probably means FASTEST_FIRST."
        )
        yield "order-bad-value", "warning", f"Unknown value. {text}"
    elif answer.certainty in ("predicted", "unknown") and answer.count and answer.reason != "mig":
        told = "is predicted" if answer.certainty == "predicted" else "cannot be told"
        if answer.order != PCI_BUS_ID:
            text = f"The order {told}: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs."
            yield "order-unset", "warning", text


def _of_gpus(answer: Answer, usage: Mapping[int, Usage]) -> Iterator[_Words]:
    """Judge the GPUs that are chosen: full, in use, too small for TensorFlow."""
    chosen = answer.visible or ()
    largest = max((device.sms or 0 for device in chosen), default=0)
    for k, device in enumerate(chosen):
        if device.instance is None:  # of a MIG device's own share nothing is known
            yield from _of_usage(f"{device.label} (cuda:{k})", device, usage)
        if device.sms is not None and device.sms < min(_TF_MIN_SMS, largest):
            text = f"TensorFlow ignores {device.label}: it has {device.sms} multiprocessors"
            yield "tf-skips-gpu", "info", f"{text} (TF_MIN_GPU_MULTIPROCESSOR_COUNT)."


def _of_usage(name: str, device: Device, usage: Mapping[int, Usage]) -> Iterator[_Words]:
    used = usage.get(device.index, Usage())
    by = f"used by {' '.join(used.users)}" if used.users else ""
    total, free = used.memory_total, used.memory_free
    if total and free is not None and free < total * _FULL:
        yield "gpu-full", "warning", f"{name} is full{': ' * bool(by)}{by}."
    elif by:
        yield "gpu-in-use", "info", f"{name} is {by}."
