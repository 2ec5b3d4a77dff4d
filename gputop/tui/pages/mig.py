"""One MIG device: who is on it, its memory, what it does."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.health.free import not_free
from gputop.model.health.who import who
from gputop.model.machine.gpu import Gpu, MigDevice, mig_number
from gputop.model.machine.sections import Activity
from gputop.model.machine.text import MISSING, percent, short_name, size
from gputop.tui.pages.gpu_processes import processes
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper, headline, title
from gputop.tui.snapshot import Snapshot

GONE: StyledLine = [(" the driver no longer lists it; these are its last figures", "alarm")]


def mig_lines(
    paper: Paper, shown: Snapshot, gpu: Gpu, device: MigDevice, gone: bool, idle_after: float
) -> Iterator[StyledLine]:
    """Yield what is known of a MIG device; `shown` is the last that lists it if it is `gone`.
    `idle_after`: seconds without work after which memory is idle."""
    number = mig_number(gpu.index, *device.instance_ids)
    yield []
    yield headline(shown.frame, f"GPU {number}  MIG {device.profile or ''}".rstrip())
    yield from paper.facts([f"of GPU {gpu.index} {short_name(gpu.name)}"], "quiet")
    if gone:
        yield GONE
    for label, text in _facts(shown, gpu, device).items():
        yield from paper.labelled(label, paper.glyphs.value(text or MISSING))
    yield from title("Processes")
    yield from processes(paper, shown, gpu, idle_after, device.instance_ids)


def _facts(shown: Snapshot, gpu: Gpu, device: MigDevice) -> dict[str, str | None]:
    """Return a text for each label; None for what is not known."""
    objection = not_free(shown.frame, gpu, device)
    used, total = device.memory_used, device.memory_total
    answer = "no" if objection and objection.is_sure else "not known"
    return {
        "UUID": device.uuid,
        "who": who(shown.frame, gpu, device),
        "free": "yes" if objection is None else f"{answer}: {objection.text}",
        "memory": None
        if used is None or total is None
        else f"{size(used)} of {size(total)} in use",
        "load": ", ".join(_loads(device.activity or Activity())),
        "for a job": device.uuid and f"CUDA_VISIBLE_DEVICES={device.uuid}",
    }


def _loads(activity: Activity) -> Iterator[str]:
    """Yield what GPM reports of the GPU instance."""
    shares = {"graphics": activity.graphics, "SMs": activity.sm, "tensor cores": activity.tensor,
              "DRAM": activity.dram}  # fmt: skip
    yield from (f"{name} {percent(share)}%" for name, share in shares.items() if share is not None)
