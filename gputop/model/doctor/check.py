"""What `gputop doctor` says about frames, and of several machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gputop.model.health.findings import findings, xid_coverage
from gputop.model.machine.finding import Finding, worst_first
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped
from gputop.model.machine.limits import CONTAINER, limits
from gputop.model.machine.text import MISSING, duration, ranges, short_name
from gputop.model.metrics.gpu import GPU, SECTIONS
from gputop.model.metrics.metric import Metric

_SETTINGS = {
    "persistence mode": "persistence_mode",
    "ECC": "ecc.enabled",
    "MIG": "mig_mode",
    "compute mode": "compute_mode",
    "power limit (W)": "power_limit",
    "VBIOS": "identity.vbios",
}
"""Metrics in which the GPUs of a site should be alike."""
_UNSAID = {"memory_unaccounted", "idle_for", "activity.doing", "throttle.shares", "mig"}
_UNSAID |= {"stale_for", "error", "pcie.tx", "pcie.rx"}
"""Metrics that may be None although all is well, or in the first frames."""


def frame_checks(frames: Sequence[Frame], is_smi_only: bool = False) -> Iterator[Finding]:
    """Yield checks of a machine's driver and GPUs, by its last frame; N/A is what no frame has.

    is_smi_only: only nvidia-smi was read, so a missing value says nothing about card or driver.
    """
    frame = frames[-1]
    if frame.problem is not None:
        yield Finding("error", "driver", frame.problem.text, frame.problem.advice)
        return
    facts = [
        frame.driver_version or "version not known",
        frame.cuda_version and f"runs CUDA up to {frame.cuda_version}",
    ]
    yield Finding("ok", "driver", ", ".join(filter(None, facts)))
    models = Counter(short_name(gpu.name) for gpu in frame.gpus)
    yield Finding("ok", "GPUs", ", ".join(f"{n} x {name}" for name, n in models.items()) or "none")
    for code, metric_id in _SETTINGS.items():
        yield from _setting(frame, code, GPU[metric_id])
    for gpu in frame.gpus:
        yield from _gpu_checks(frame, gpu)
    if is_smi_only:
        return
    yield from _not_available(frames)
    yield Finding("ok", "XIDs", xid_coverage(frame).removeprefix("XIDs: "))


def _setting(frame: Frame, code: str, metric: Metric[Gpu]) -> Iterator[Finding]:
    """Yield what a setting of the GPUs is, unless that is known of none."""
    alike = grouped(frame.gpus, metric.text)
    if alike.keys() <= {MISSING}:
        return
    texts = ["not known" if text == MISSING else text for text in alike]
    if len(texts) > 1:
        whose = [ranges(gpu.index for gpu in gpus) for gpus in alike.values()]
        texts = [f"{text} (GPU {of})" for text, of in zip(texts, whose, strict=True)]
    yield Finding("ok", code, ", ".join(texts))


def _gpu_checks(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    code = f"GPU {gpu.index}"
    if gpu.state == "late":
        yield Finding("error", code, f"has not answered for {duration(gpu.stale_for)}",
                      "try again: gputop doctor")  # fmt: skip
    if gpu.state == "asleep":
        yield Finding("ok", code, "asleep, and not queried, since that would wake it")
    for finding in findings(frame, gpu):
        yield replace(finding, code=code)
    for sentence in limits(frame, gpu):
        if sentence != CONTAINER:  # the check of the PID namespace says it once
            yield Finding("info", code, sentence)
    if gpu.listed == "none" and not frame.host.wsl:
        yield Finding("warning", code, "the driver does not list its processes, as without"
                      " permission: who uses it is not known")  # fmt: skip


def _not_available(frames: Sequence[Frame]) -> Iterator[Finding]:
    """Yield the values that no frame has, by the detail page's headings; equal gaps together."""
    gaps: dict[str, list[Gpu]] = {}
    for gpu in frames[-1].gpus:
        samples = [sample for frame in frames for sample in frame.gpus if sample.key == gpu.key]
        if gpu.state == "answers" and (text := _gaps(samples)):
            gaps.setdefault(text, []).append(gpu)
    for text, gpus in gaps.items():
        names = ", ".join(dict.fromkeys(short_name(gpu.name) for gpu in gpus))
        who = "GPU " + ", ".join(str(gpu.index) for gpu in gpus)
        if len(gpus) == len(frames[-1].gpus):
            who = "every GPU"
        yield Finding("ok", "N/A", f"{who} ({names}), because of the card or the driver: {text}")


def _gaps(samples: Sequence[Gpu]) -> str:
    parts = []
    for heading, metrics in SECTIONS.items():
        asked = [metric for metric in metrics if metric.id not in _UNSAID]
        gaps = [
            metric.label for metric in asked if all(metric.read(gpu) is None for gpu in samples)
        ]
        if gaps:
            parts.append(f"{heading} ({'all' if len(gaps) == len(asked) else ', '.join(gaps)})")
    return "; ".join(parts)


def compare(
    checks: Mapping[str, Sequence[Finding]],
) -> tuple[list[Finding], dict[Finding, list[str]]]:
    """Return what more than half of several machines have, and what the others have or lack, with
    the names of these, the worst first."""
    hosts: dict[Finding, list[str]] = {}
    for host, listed in checks.items():
        for check in dict.fromkeys(listed):
            hosts.setdefault(check, []).append(host)
    codes = list(dict.fromkeys(check.code for check in hosts))
    ordered = sorted(hosts, key=lambda check: codes.index(check.code))
    common = [check for check in ordered if 2 * len(hosts[check]) > len(checks)]
    differences = {check: hosts[check] for check in ordered if check not in common}
    for host, listed in checks.items():
        if (lack := _lack(common, listed)) is not None:
            differences.setdefault(lack, []).append(host)
    return common, {check: differences[check] for check in worst_first(differences)}


def _lack(common: Iterable[Finding], checks: Sequence[Finding]) -> Finding | None:
    """Return which common checks a machine has nothing else in place of; None if there are none."""
    own = {check.code for check in checks if check not in common}
    some = {check.code for check in checks}
    lacks = [
        f"{check.code} {check.text}" if check.code in some else check.code
        for check in common
        if check not in checks and check.code not in own
    ]
    return Finding("info", "not there", ", ".join(dict.fromkeys(lacks))) if lacks else None
