"""Every word on the screen and its meaning, for the help."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.fleet.host_summary import LAMPS
from gputop.model.health import activity, free
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.fleet import lamp_sign

Definitions = Iterable[tuple[str, str]]

_GPU = (
    ("WHO", "whose processes compute on it, most memory first; or free"),
    ("+2", "two more users, for whom there is no room"),
    ("MEM", "memory in use, without what the driver reserves, and the total"),
    ("free", "nobody on it, nothing unaccounted for, healthy, not reserved, and not at work"),
    ("reserved by bob", "with gputop run or reserve; nothing of his runs on it yet"),
    ("idle 41m", "its processes have done no work on it for this long"),
    ("no process", "no process is listed, but it is not free"),
    ("not listed", "the driver does not list processes here (WSL, no permission)"),
    ("none seen", "in a container: processes outside of it cannot be seen"),
    ("display", "it drives a display, and nobody computes on it"),
    ("asleep", "the kernel has powered it down; reading it would wake it"),
    ("not in /proc", "a process that has ended, or is in another PID namespace"),
    ("has not answered yet", "the driver has reported nothing about this GPU so far"),
    ("PAUSED", "the screen is frozen; p resumes"),
    ("MIG", "the GPU is partitioned: a row for each slice"),
    ("0:2, 0:2/1", "a slice: GPU instance 2 of GPU 0, and its compute instance 1"),
    (
        "the last 3 minutes",
        "newest at the right; a gap is a missing sample; g changes the metric,"
        " which is never one that the graphs below show",
    ),
    ("CPU, RAM", "of the host"),
    ("1 user seen", "there may be more: WSL, a container or permissions hide them"),
    ("users unknown", "the driver does not list processes here"),
)
_FINDINGS = (
    ("XID 79", "an error that the driver reported by number"),
    ("HUNG", "the GPU has not answered for several seconds"),
    ("UNACCOUNTED", "memory that no process holds which the driver lists"),
    ("LOST", "the driver can no longer reach the card"),
    ("UNREAD", "gputop failed to read the GPU: a bug in gputop"),
    ("RECOVERY", "the driver asks for a reset or a reboot"),
    ("ECC", "memory errors that could not be corrected"),
    ("REMAP", "a row of memory is to be remapped, or could not be"),
    ("SRAM", "too many errors in the chip's own memory"),
    ("MEMORY", "memory that cannot be repaired"),
    ("REPAIR", "a memory repair is pending until the next reset"),
    ("PAGES", "pages of memory are waiting to be retired"),
    ("FABRIC", "the NVSwitch fabric is not ready, or has failed"),
    ("NVLINK", "links to other GPUs are down"),
    ("PCIE", "the link to the CPU is narrower or slower than it could be"),
    ("HOT", "the GPU or its memory is too hot, and slows down"),
    ("POWER BRAKE", "the power supply is overloaded, so the GPU slows down"),
    ("SLOWDOWN", "the hardware slows the GPU down"),
    ("PERS", "persistence mode is off: the driver starts again for each program"),
    ("MODE", "its compute mode keeps programs off it"),
)
_PROCESSES = (
    ("ended (SIGTERM)", "the process has ended, by this signal if gputop sent one"),
    ("unaccounted", "memory in use that belongs to no listed process"),
    ("2 tagged", "tagged with Space: F9 applies to these and to nothing else"),
    ("3 of 37", "how many processes pass the filter and the view"),
    ("rows 1-36 of 208", "rows in view; unaccounted memory and groups have rows of their own"),
)
_MAPPING = (
    ("cuda:0", "what a program calls the first GPU that it can see"),
    ("exact", "the order of the GPUs follows from the driver's rules"),
    ("likely", "CUDA usually counts the GPUs in this order"),
    ("uncertain", "CUDA may count the GPUs in this order"),
    ("unknown", "their order cannot be known"),
    ("verified", "the CUDA driver itself was asked, and agrees"),
    ("contradicted", "the GPUs that the process uses do not fit its variables"),
    ("ambiguous", "several orders fit the GPUs that it uses"),
    ("inferred", "one of several orders was chosen by the GPUs that it uses"),
    ("unread", "the variables of the process could not be read"),
    ("139 GiB unused", "memory of the GPU that is not in use, whoever is on it"),
    ("hidden", "GPUs that the value leaves out, and why"),
)

_HOSTS = (
    ("FREE", "free GPUs, and all GPUs"),
    ("MODEL", "of its GPUs; +1: one other model"),
    ("UTIL, MEM-FREE", "the mean utilization of its GPUs, and their free memory in all"),
    ("AGE", "time since the host last sent anything"),
    ("RTT", "round-trip time to the agent there"),
    ("ATTENTION", "the worst finding and its GPUs, or a note about the host"),
    ("12 seen", "hosts whose data is current"),
    ("free node3:0-2", "free GPUs, as host:index"),
    ("log in with L", "the host needs a password or a second factor"),
    ("connecting", "ssh is connecting, or the agent there is starting"),
    ("waiting for its turn", "few connections are made at a time, or hosts would refuse them"),
    ("no answer", "it is connected, but sends nothing"),
    ("again in 8s", "gputop connects again then; r does so at once"),
    ("the same machine as", "two names of one machine, which counts once"),
    ("rebooted", "its boot id has changed"),
)


def sections(glyphs: GlyphSet) -> Iterable[tuple[str, Definitions]]:
    """Yield the title and the definitions of each section."""
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
    yield "0", "measured, and nothing"
    yield glyphs.not_available, "not available, or no sample in this interval"
    yield glyphs.pending, "no sample yet"
    yield f"{glyphs.stale} 3s, stale", "the GPU does not answer; its values are this old"
    yield (
        f"{glyphs.stale} no answer, hung",
        "it has not answered for this long; no value is current",
    )
    yield f"{glyphs.warning} HOT", "the worst finding on the GPU"
    yield glyphs.cursor, "the selected row of the pane that has the focus"
    yield glyphs.separator, "the selected row of the other pane"
    yield glyphs.tag, "a tagged process"
    yield glyphs.mark, "marked with W: you are notified when it is free, or has ended"


def _lamps(glyphs: GlyphSet) -> Definitions:
    for kind, meaning in LAMPS.items():
        yield lamp_sign(kind, glyphs), f"a GPU: {meaning}"
