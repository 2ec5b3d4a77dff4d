"""The XIDs that people meet: what happened, and what to do (NVIDIA's "XID Errors" document)."""

from __future__ import annotations

from typing import NamedTuple

RESET = "stop what runs there and reset it: nvidia-smi --gpu-reset -i {index}"
REBOOT = "reboot the machine"
REPLACE = "if it comes back, have the card replaced"


class XidMeaning(NamedTuple):
    """One XID; `{index}` in the advice is the GPU's."""

    text: str
    advice: str
    needs_a_person: bool = True
    """False where a program is the likely cause, or the card has helped itself."""


_PROGRAM = "its owner looks for the error, with compute-sanitizer; the card is most likely well"
_FIRMWARE = f"{RESET}; if that does not help, {REBOOT} and update the driver"
_SEATING = "check its power cables, its seat and its temperature"
_UNKNOWN = XidMeaning(
    "an error that gputop does not know",
    "look it up in NVIDIA's list of XIDs; the kernel's log has more (dmesg | grep Xid)",
    False,
)

_MEANINGS = {
    13: XidMeaning("a program made an illegal access or instruction", _PROGRAM, False),
    31: XidMeaning("a program used an address that is not its own", _PROGRAM, False),
    32: XidMeaning("the commands of a program arrived damaged", f"if it comes back, {_SEATING}"),
    38: XidMeaning("the driver's firmware failed", _FIRMWARE),
    43: XidMeaning("a program's work was stopped after an error of its own", _PROGRAM, False),
    45: XidMeaning(
        "work was cleared away, as after an error or a kill",
        "an XID before it tells why; after a kill there is nothing to do",
        False,
    ),
    46: XidMeaning("the GPU stopped working", RESET),
    48: XidMeaning("an uncorrected memory error", f"{RESET}; {REPLACE}"),
    61: XidMeaning("the card's microcontroller reported an error", f"{RESET}; {REPLACE}"),
    62: XidMeaning("the card's microcontroller stopped", f"{RESET}; {REPLACE}"),
    63: XidMeaning(
        "the card wrote down memory that it will replace",
        "it takes effect at the next reset",
        False,
    ),
    64: XidMeaning("the card could not write down memory to be replaced", f"{RESET}; {REPLACE}"),
    69: XidMeaning("a program gave the GPU an illegal command", _PROGRAM, False),
    74: XidMeaning("an NVLink failed", f"{RESET}; if it comes back, check switch, bridge and seat"),
    79: XidMeaning("the GPU has fallen off the bus", f"{REBOOT}; if it comes back, {_SEATING}"),
    92: XidMeaning("many corrected memory errors", "watch them: ECC-COR in the details", False),
    94: XidMeaning(
        "an uncorrected memory error, which ended one program alone",
        "the others go on; when they are done, reset it: nvidia-smi --gpu-reset -i {index}",
    ),
    95: XidMeaning("an uncorrected memory error that concerns every program there", RESET),
    109: XidMeaning("programs could not be switched in time", RESET),
    119: XidMeaning("the card's processor (GSP) does not answer the driver", _FIRMWARE),
    120: XidMeaning("the card's processor (GSP) failed", _FIRMWARE),
    121: XidMeaning("the link to the CPU (C2C) failed", RESET),
    140: XidMeaning("an uncorrected memory error", f"{RESET}; {REPLACE}"),
    143: XidMeaning("the GPU could not be started", f"{REBOOT}; {REPLACE}"),
    154: XidMeaning("what the GPU needs has changed", "see RECOVERY in the details", False),
}


def meaning(number: int) -> XidMeaning:
    """Of an XID, known or not."""
    return _MEANINGS.get(number, _UNKNOWN)
