"""Every word that stands on the screen, and what it means: for the help."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.fleet import lamps
from gputop.model.health import activity, free
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.fleet import lamp_sign

Definitions = Iterable[tuple[str, str]]

_GPU = (
    ("WHO", "who computes on it, most memory first; or that it is free"),
    ("+2", "two more users, for whom there is no room"),
    ("MEM", "memory in use, without what the driver reserves, and all of it"),
    ("free", "nobody on it, nothing unaccounted for, healthy, not reserved, and not at work"),
    ("reserved by bob", "he has it with gputop run or reserve, and is not on it yet"),
    ("idle 41m", "who is there has done nothing on it for so long"),
    ("no process", "nobody is listed, and it is not free all the same"),
    ("not listed", "the driver does not say who computes here (WSL, no permission)"),
    ("none seen", "in a container, where those outside of it cannot be seen"),
    ("display", "it draws, and nobody computes on it"),
    ("asleep", "the kernel has powered it down, and to ask would wake it"),
    ("not in /proc", "a process that cannot be seen from here (another PID namespace), or ended"),
    ("has not answered yet", "the driver has said nothing of this GPU so far"),
    ("PAUSED", "the picture is held; p goes on"),
    ("MIG", "the GPU is divided; each part has a row, by GPU instance and compute instance"),
    ("the last 3 minutes", "now is at the right; gaps are gaps; g shows another metric"),
    ("CPU, RAM", "of the host"),
    ("1 user seen", "others cannot be seen from here: WSL, a container, no permission"),
    ("users unknown", "the driver does not say who computes here"),
)
_FINDINGS = (
    ("XID 79", "an error that the driver reports by number"),
    ("HUNG", "the GPU has not answered for some seconds"),
    ("LOST", "the driver cannot reach the card any more"),
    ("UNREAD", "gputop could not read the GPU: a fault of its own"),
    ("RECOVERY", "the driver asks for a reset or a reboot"),
    ("ECC", "memory errors that could not be corrected"),
    ("REMAP", "a faulty row of memory waits to be replaced, or could not be"),
    ("SRAM", "too many errors in the chip's own memory"),
    ("MEMORY", "memory that cannot be repaired"),
    ("REPAIR", "a repair of the memory waits for a reset"),
    ("PAGES", "pages of memory wait to be retired"),
    ("FABRIC", "the NVSwitch fabric is not ready, or has a fault"),
    ("NVLINK", "links to other GPUs are down"),
    ("PCIE", "the link to the CPU is narrower or slower than it could be"),
    ("HOT", "the GPU or its memory is too hot, and slows down"),
    ("POWER BRAKE", "the power supply is overloaded, so the GPU slows down"),
    ("SLOWDOWN", "the hardware slows the GPU down"),
    ("PERS", "persistence mode is off: the driver starts anew for each program"),
    ("MODE", "its compute mode keeps programs off it"),
)
_PROCESSES = (
    ("ended (SIGTERM)", "the process has ended, by this signal where it was sent from here"),
    ("unaccounted", "memory in use that belongs to no process the driver lists"),
    ("2 tagged", "Space has tagged these; F9 is for them and nothing else"),
    ("3 of 37", "how many processes the filter and the view leave"),
    ("rows 1-36 of 208", "those in sight; memory of no process and groups have rows of their own"),
)
_MAPPING = (
    ("cuda:0", "what a program calls its first GPU, after CUDA_VISIBLE_DEVICES"),
    ("exact, likely", "how far the order of the GPUs can be relied on: by definition; as CUDA"),
    ("uncertain, unknown", "usually has it; as it may have it; it cannot be told"),
    ("verified", "the CUDA driver itself was asked, and agrees"),
    ("contradicted", "what the process does on the GPUs does not fit its variables"),
    ("ambiguous, inferred", "several orders fit what is seen; one was chosen by what is seen"),
    ("unread", "the variables of the process may not be read"),
    ("139 GiB unused", "memory of the GPU that is not in use, whoever is on it"),
    ("hidden", "GPUs that the value leaves out, and why"),
)

_HOSTS = (
    ("FREE", "free GPUs, of all"),
    ("AGE", "since the last line came from the host"),
    ("RTT", "round trip: a question to the agent there, and back"),
    ("ATTENTION", "the worst finding and its GPUs, or what is to know of the host"),
    ("12 seen", "of these hosts there is a picture of now"),
    ("free node3:0-2", "free GPUs, as host:index"),
    ("log in with L", "the host wants a password or a second factor, which ssh then asks for"),
    ("connecting", "ssh is on its way, or the agent there starts"),
    ("waits for its turn", "few connections are made at a time, or hosts would refuse them"),
    ("no answer", "it is connected, and sends nothing"),
    ("again in 8s", "it is tried again; r tries at once"),
    ("the same machine as", "two names of one machine: it counts once"),
    ("rebooted", "it has another boot id than before"),
)


def sections(glyphs: GlyphSet) -> Iterable[tuple[str, Definitions]]:
    """Return title and words of each section."""
    yield "Signs", _signs(glyphs)
    yield "GPUs", _GPU
    yield "Hosts, where several are watched", [*_lamps(glyphs), *_HOSTS]
    yield "Why a GPU is not free", free.WORDS
    yield f"Findings, after {glyphs.warning} on a GPU; H says more", _FINDINGS
    window = f"{activity.WINDOW:.0f} s"
    yield f"What a GPU is doing, over {window}: the first that fits", activity.WORDS
    reasons = [(reason.word, reason.meaning) for reason in THROTTLE_REASONS.values()]
    yield "What holds the clocks back", reasons
    yield "Processes", _PROCESSES
    yield "Mapping", _MAPPING
    yield "Columns of processes", [(metric.label, metric.help) for metric in COLUMNS.values()]
    yield "Values of GPUs", [(metric.label, metric.help) for metric in GPU.values()]


def _signs(glyphs: GlyphSet) -> Definitions:
    yield "0", "nothing, measured"
    yield glyphs.not_available, "not available, or no sample in this interval"
    yield glyphs.pending, "no sample yet"
    yield f"{glyphs.stale} 3s, stale", "the GPU does not answer, and its values are so old"
    yield f"{glyphs.stale} no answer, hung", "for so long: there are no values of now"
    yield f"{glyphs.warning} HOT", "the worst finding on the GPU"
    yield glyphs.cursor, "the selected row of the pane that the keys go to"
    yield glyphs.separator, "the selected row of the other pane"
    yield glyphs.tag, "a tagged process"
    yield glyphs.mark, "marked with W: you are notified when it is free, or has ended"


def _lamps(glyphs: GlyphSet) -> Definitions:
    for kind, meaning in lamps.WORDS.items():
        yield lamp_sign(kind, glyphs), f"a GPU: {meaning}"
