"""What the processes of a frame call their GPUs."""

from __future__ import annotations

from typing import NamedTuple

from gputop.model.device_sets import Machine
from gputop.model.enumeration import Device
from gputop.model.environ import Surroundings
from gputop.model.frame import Frame, Process
from gputop.model.inventory import frame_devices
from gputop.model.process_mapping import ProcessMapping, process_mapping

_SERVER = "nvidia-cuda-mps-server"


class _Known(NamedTuple):
    around: Surroundings
    used: tuple[Device, ...]
    mps: bool
    mapping: ProcessMapping


class LogicalNames:
    """The mappings of the processes of one frame, each worked out when somebody asks for it.

    `before`, those of the frame before, keep what did not change.
    """

    def __init__(self, frame: Frame, before: LogicalNames | None = None) -> None:
        self._frame = frame
        self._rows: dict[int, list[Process]] | None = None
        self.machine = machine_of(frame)
        self._places = {
            (gpu.uuid, *part.place[1:]): part
            for gpu in self.machine.devices
            for part in gpu.parts()
        }
        same = before is not None and before.machine == self.machine
        self._known: dict[tuple[int, float | None], _Known] = {}
        self._before = before._known if before is not None and same else {}

    def mapping(self, process: Process) -> ProcessMapping | None:
        """Of one process; None where its surroundings are not known (yet)."""
        if process.surroundings is None:
            return None
        key = (process.pid, process.start_time)
        if key not in self._known:
            self._known[key] = self._work_out(
                process.pid, process.surroundings, self._before.get(key)
            )
        return self._known[key].mapping

    def name(self, process: Process) -> str | None:
        """What it calls the GPU of this row: `cuda:0`, `cuda:0?` where that is likely, a word for
        why that is not known; None where there is nothing to call or to say."""
        mapping = self.mapping(process)
        if mapping is None or process.type == "G" or process.gpu_memory == 0:
            return None
        device = self._device(process)
        return (device and mapping.name(device)) or mapping.why_not()

    def of(self, pid: int, around: Surroundings) -> ProcessMapping:
        """Of a process that the frame need not list."""
        return self._work_out(pid, around, None).mapping

    def _of_pid(self, pid: int) -> list[Process]:
        if self._rows is None:
            self._rows = {}
            for process in self._frame.processes:
                self._rows.setdefault(process.pid, []).append(process)
        return self._rows.get(pid, [])

    def _device(self, process: Process) -> Device | None:
        """A MIG device; its GPU where the MIG devices are not known."""
        place = (process.gpu_uuid, process.gpu_instance, process.compute_instance)
        return self._places.get(place) or self._places.get((process.gpu_uuid, None, None))

    def _work_out(self, pid: int, around: Surroundings, before: _Known | None) -> _Known:
        rows = self._of_pid(pid)
        # A graphics context heeds no variable, and an entry of 0 bytes is a peer's access.
        held = [one for one in rows if one.type != "G" and one.gpu_memory != 0]
        used = tuple(device for row in held if (device := self._device(row)) is not None)
        mps = any("M" in one.type for one in rows)
        if before is not None and before[:3] == (around, used, mps):
            return before
        found = process_mapping(around, self.machine, used, mps=mps)
        return _Known(around, used, mps, found)


def machine_of(frame: Frame) -> Machine:
    """What the mappings of all processes of a frame share."""
    servers = {
        process.pid: process.surroundings.environ
        for process in frame.processes
        if process.surroundings is not None and _SERVER in (process.command or "")
    }
    return Machine(
        frame_devices(frame), frame.driver_version, frame.probed, tuple(servers.values())
    )
