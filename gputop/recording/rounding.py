"""Numbers as finely as anybody reads them: half of a recording would be digits that no screen has.

What of a GPU is compared with other programs, as its memory and power, stays as it is.
"""

from __future__ import annotations

from math import floor, log10

from msgspec.structs import replace

from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MIB

_DIGITS = 3
"""Of rates: as `model.machine.text` writes them."""


def rounded(frame: Frame) -> Frame:
    """Return a frame with CPU use in whole percents of a core, main memory in whole MiB, whole
    seconds, and rates of three digits."""
    return replace(
        frame,
        host=_host(frame.host),
        gpus=tuple(map(_gpu, frame.gpus)),
        processes=tuple(map(_process, frame.processes)),
    )


def _host(host: Host) -> Host:
    return replace(host, cpu=_round(host.cpu, 3), memory_used=_whole_mib(host.memory_used))


def _gpu(gpu: Gpu) -> Gpu:
    pcie, nvlink = gpu.pcie, gpu.nvlink
    return replace(
        gpu,
        pcie=pcie and replace(pcie, tx=_rate(pcie.tx), rx=_rate(pcie.rx)),
        nvlink=nvlink and replace(nvlink, tx=_rate(nvlink.tx), rx=_rate(nvlink.rx)),
        idle_for=_round(gpu.idle_for, 0),
    )


def _process(process: Process) -> Process:
    return replace(
        process,
        cpu=_round(process.cpu, 2),
        rss=_whole_mib(process.rss),
        io_read=_rate(process.io_read),
        io_write=_rate(process.io_write),
        idle_for=_round(process.idle_for, 0),
    )


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _whole_mib(count: int | None) -> int | None:
    return None if count is None else round(count / MIB) * MIB


def _rate(value: float | None) -> float | None:
    return round(value, _DIGITS - 1 - floor(log10(abs(value)))) if value else value
