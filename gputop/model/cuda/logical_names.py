"""The names that the processes of a frame have for their GPUs."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import msgspec

from gputop.model.cuda.advice import host_pid_advice
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.inventory import frame_devices
from gputop.model.cuda.process_mapping import ProcessMapping, process_mapping
from gputop.model.cuda.reach import Machine
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.grouped import grouped
from gputop.model.machine.probed import Probed
from gputop.model.machine.process_id import ProcessId

_SERVER = "nvidia-cuda-mps-server"


class _CachedMapping(NamedTuple):
    context: CudaContext
    used: tuple[CudaDevice, ...]
    mps: bool | None
    mapping: ProcessMapping


class LogicalNames:
    """The mappings of the processes of one frame, each worked out when it is first needed.

    `before`, the mappings of the previous frame, supply those that did not change.
    """

    def __init__(
        self,
        frame: Frame,
        before: LogicalNames | None = None,
        probed: tuple[Probed, ...] = (),
    ) -> None:
        """Prepare the mappings; `probed` are the CUDA driver's answers about these GPUs."""
        self._frame, self._probed = frame, probed
        same = before is not None and before.machine == self.machine
        self._mappings: dict[ProcessId, _CachedMapping] = {}
        self._alike: dict[tuple[object, ...], ProcessMapping] = {}
        """The mappings by all that they depend on: the processes of a job have the same."""
        self._before = before._mappings if before is not None and same else {}

    @cached_property
    def machine(self) -> Machine:
        """What the mappings of all processes of the frame share."""
        frame = self._frame
        servers = {
            process.pid: process.cuda_context.environ
            for process in frame.processes
            if process.cuda_context is not None and _is_server(process)
        }
        return Machine(
            frame_devices(frame),
            frame.driver_version,
            self._probed,
            tuple(servers.values()),
            frame.host.surroundings,
        )

    @cached_property
    def _devices(self) -> dict[tuple[object, ...], CudaDevice]:
        return {
            (gpu.uuid, *part.id[1:]): part for gpu in self.machine.devices for part in gpu.parts()
        }

    def mapping(self, process: Process) -> ProcessMapping | None:
        """Return the mapping of a process; None if its CUDA context is not known (yet)."""
        if process.cuda_context is None:
            return None
        key = process.id
        if key not in self._mappings:
            self._mappings[key] = self._work_out(
                process.pid, process.cuda_context, self._before.get(key)
            )
        return self._mappings[key].mapping

    def name(self, process: Process) -> str | None:
        """Return what a process calls the GPU of its row: `cuda:0`, or `cuda:0?` if that is only
        likely. Without a name, return a word for why, or None if that needs no word."""
        mapping = self.mapping(process)
        if mapping is None or process.type == "G" or process.gpu_memory == 0:
            return None
        device = self._device(process)
        return (device and mapping.name(device)) or mapping.why_not()

    def of(self, pid: int, context: CudaContext) -> ProcessMapping:
        """Return the mapping of a process that the frame need not list. A row that may be of
        another process with this PID, on the host, is not counted as its own."""
        mapping = self._work_out(pid, context, None).mapping
        gpus = {row.gpu_uuid for row in self._frame.processes if row.pid == pid and row.elsewhere}
        labels = [device.label for device in self.machine.devices if device.uuid in gpus]
        if not labels:
            return mapping
        advice = host_pid_advice(pid, labels)
        return msgspec.structs.replace(mapping, advice=(*mapping.advice, advice))

    @cached_property
    def _rows(self) -> dict[int, list[Process]]:
        """The processes by their PIDs."""
        return grouped((p for p in self._frame.processes if not p.elsewhere), attrgetter("pid"))

    def _device(self, process: Process) -> CudaDevice | None:
        device = (process.gpu_uuid, process.gpu_instance, process.compute_instance)
        return self._devices.get(device) or self._devices.get((process.gpu_uuid, None, None))

    def _work_out(
        self, pid: int, context: CudaContext, before: _CachedMapping | None
    ) -> _CachedMapping:
        rows = self._rows.get(pid, ())
        # A graphics context heeds no variable, and an entry of 0 bytes is a peer's access.
        held = [row for row in rows if row.type != "G" and row.gpu_memory != 0]
        used = tuple(device for row in held if (device := self._device(row)) is not None)
        mps = any("M" in row.type for row in rows) if held else None
        if before is not None and before[:3] == (context, used, mps):
            return before
        machine = self.machine
        if any(map(_is_server, rows)):  # a server is not its own client
            machine = msgspec.structs.replace(machine, mps_servers=())
        alike = (msgspec.json.encode(context), used, mps, machine is self.machine)
        if alike not in self._alike:
            self._alike[alike] = process_mapping(context, machine, used, mps=mps)
        return _CachedMapping(context, used, mps, self._alike[alike])


def _is_server(process: Process) -> bool:
    """Return whether a process is an MPS server, by its program and not its arguments."""
    program = (process.command or "").partition(" ")[0]
    return program.rpartition("/")[2] == _SERVER
