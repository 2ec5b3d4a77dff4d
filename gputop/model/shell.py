"""A mapping as a line for a POSIX shell."""

import shlex

from gputop.model.mapping import Mapping
from gputop.model.readings import kind_of


def export_line(mapping: Mapping) -> str:
    """Give a shell line that sets the value again.

    Integers count in CUDA_DEVICE_ORDER, so that one goes with them where it is set.
    """
    if mapping.value is None:
        return "unset CUDA_VISIBLE_DEVICES"
    line = f"export CUDA_VISIBLE_DEVICES={quoted(mapping.value)}"
    counts = kind_of(mapping.value) == "integer" and mapping.count != 0
    if mapping.order is None or not counts:
        return line
    return f"{line} CUDA_DEVICE_ORDER={quoted(mapping.order)}"


def uuid_export_line(mapping: Mapping) -> str | None:
    """Give a shell line for the same GPUs that means the same in every CUDA_DEVICE_ORDER.

    None where the GPUs or their UUIDs are not known. No GPU is -1, which older guides know too.
    """
    if mapping.visible is None:
        return None
    uuids = [
        (device.mig_uuid if device.instance else device.uuid) or "" for device in mapping.visible
    ]
    kinds = {uuid[:4] for uuid in uuids}
    if not kinds <= {"GPU-"} and kinds != {"MIG-"}:
        return None
    return f"export CUDA_VISIBLE_DEVICES={quoted(','.join(uuids) or '-1')}"


def quoted(text: str) -> str:
    """Quote for a shell; control characters become escapes, so that none is pasted raw."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    # Bytes of the environment that are not UTF-8 arrive as lone surrogates (PEP 383).
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
