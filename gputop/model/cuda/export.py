"""A mapping as a line for a POSIX shell."""

import re

from msgspec.structs import replace

from gputop.model.cuda.entries import kind_of
from gputop.model.cuda.mapping import Mapping
from gputop.model.machine.text import printable

_MAX_WORD_CHARS = 2000
"""Characters of a word; a longer one gives no line, so that no line is shown cut."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,/-]*|-[0-9][0-9,]*", re.ASCII)
"""A word that needs no quotes. `=`, `~` and `:` mean more to zsh, and are left out."""


def export_line(mapping: Mapping) -> str | None:
    """Return a shell line that sets the value again; None for a value that cannot be quoted.

    Integers count in CUDA_DEVICE_ORDER, so the line sets that too if it is set.
    """
    if mapping.value is None:
        return "unset CUDA_VISIBLE_DEVICES"
    words = {"CUDA_VISIBLE_DEVICES": quoted(mapping.value)}
    counts = kind_of(mapping.value) == "integer" and mapping.count != 0
    if mapping.order is not None and (counts or mapping.reason == "order"):
        words["CUDA_DEVICE_ORDER"] = quoted(mapping.order)
    if None in words.values():
        return None
    return "export " + " ".join(f"{name}={word}" for name, word in words.items())


def corrected_line(mapping: Mapping) -> str | None:
    """Return the shell line for the entries before the one that ended the list; None if no entry
    did, or none is before it."""
    kept = [entry.text for entry in mapping.entries if entry.outcome in ("visible", "discarded")]
    if mapping.stopped_at is None or not kept:
        return None
    return export_line(replace(mapping, value=",".join(kept)))


def why_no_line(mapping: Mapping) -> str | None:
    if export_line(mapping) is not None:
        return None
    for name, text in (("VISIBLE_DEVICES", mapping.value), ("DEVICE_ORDER", mapping.order)):
        if text is not None and quoted(text) is None:
            why = "has characters that a shell line must not contain"
            if len(text) > _MAX_WORD_CHARS:
                why = f"is longer than {_MAX_WORD_CHARS} characters"
            return f"no shell line: CUDA_{name} {why}"
    return None


def shell_lines(mapping: Mapping) -> tuple[str, ...]:
    """Return the lines that set the value again: as it is, and by UUIDs if it is not exact."""
    line = export_line(mapping)
    same = None if mapping.certainty == "exact" else uuid_export_line(mapping)
    if same == line:
        same = None
    return tuple(filter(None, (line, same and f"{same}  # the same in every order")))


def uuid_export_line(mapping: Mapping) -> str | None:
    """Return a shell line for the same GPUs that means the same in every CUDA_DEVICE_ORDER.

    None if the GPUs or their UUIDs are not known. No GPU is written -1, as in older guides too.
    """
    if mapping.visible is None:
        return None
    uuids = [device.own_uuid or "" for device in mapping.visible]
    kinds = {uuid[:4] for uuid in uuids}
    if not kinds <= {"GPU-"} and kinds != {"MIG-"}:
        return None
    word = quoted(",".join(uuids) or "-1")
    return word and f"export CUDA_VISIBLE_DEVICES={word}"


def quoted(text: str) -> str | None:
    """Quote a word for a POSIX shell: sh, dash, bash, zsh, busybox; not csh or fish.

    In single quotes no character is special to any of them. None for text that is unsafe to copy
    from a terminal: control characters, what reorders or hides, bytes that are not UTF-8. No escape
    for those works in every shell: dash takes `$'\\''` apart and runs what follows.
    """
    if (
        len(text) > _MAX_WORD_CHARS
        or not text.isprintable()
        or printable(text, _MAX_WORD_CHARS) != text
    ):
        return None
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
