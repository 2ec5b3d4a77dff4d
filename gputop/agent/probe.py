"""Asks the CUDA driver what a CUDA_VISIBLE_DEVICES value means: the only exact answer.

The driver reads the variable once in a process, so each question takes a child process. It makes no
context and takes no GPU memory, but may wake a sleeping GPU: ask only for a user's question.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec

from gputop.agent.program import run_program
from gputop.model.cuda.inventory import Inventory
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.probed import Probed, ProbedDevice
from gputop.model.machine.text import printable
from gputop.trust import probe_environment

_CHILD = """
import _thread, ctypes, json, os
from uuid import UUID

def watch():  # standard input ends with the one who asked, and this with it
    os.read(0, 1)
    os._exit(1)

_thread.start_new_thread(watch, ())

def say(**probed):
    os.write(1, b"\\n" + json.dumps(probed).encode())
    os._exit(0)  # past the driver's own clean-up

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code == 100:  # CUDA_ERROR_NO_DEVICE
        say(devices=[])
    if code == 101 and name == "cuInit":  # CUDA_ERROR_INVALID_DEVICE: a GPU twice, a bad order
        say(devices=[])
    if code != 0:
        say(problem=f"{name} failed with CUDA error {code}")

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    say(problem=f"libcuda.so.1 cannot be loaded: {error}")
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
get_uuid = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
devices = []
for ordinal in range(count.value):
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()  # no text: it may hold NULs
    bus_id, name = (ctypes.create_string_buffer(256) for _ in range(2))
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call(get_uuid, uuid, device)
    call("cuDeviceGetPCIBusId", bus_id, 256, device)
    call("cuDeviceGetName", name, 256, device)
    place, name = (text.value.decode("utf-8", "replace") for text in (bus_id, name))
    devices.append({"uuid": str(UUID(bytes=bytes(uuid))), "pci_bus_id": place, "name": name})
say(devices=devices)
"""

_MOST = 16
"""The number of answers that are remembered."""


class Prober:
    """Asks the CUDA driver, for `seconds` at most, and remembers the answers."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._answers: dict[tuple[object, ...], Probed] = {}
        self._stuck: subprocess.Popen[bytes] | None = None

    def ask(self, value: str | None, order: str | None, inventory: Inventory) -> Probed:
        """Return what the driver makes of the two variables (None: unset); never raises.

        An answer is reused while `inventory`, this machine's, is unchanged; after a failure the
        driver is asked again.
        """
        key = (inventory.driver_version, inventory.devices, value, order)
        probed = self._answers.get(key)
        if probed is None or probed.devices is None:
            probed = self._ask({NAME: value, ORDER: order})
            probed = msgspec.structs.replace(probed, value=value, order=order)
        self._answers.pop(key, None)  # keeps the newest last
        self._answers[key] = probed
        for oldest in list(self._answers)[:-_MOST]:
            del self._answers[oldest]
        return probed

    def _ask(self, variables: dict[str, str | None]) -> Probed:
        # A child that hangs in the driver may outlive SIGKILL: do not start another.
        if self._stuck is not None and self._stuck.poll() is None:
            return Probed(problem="an earlier query still hangs in the CUDA driver")
        # -I and -S: no module of the current directory or of site-packages gets in the way.
        command = [sys.executable, "-I", "-S", "-c", _CHILD]
        reading, lifeline = os.pipe()
        try:
            done = run_program(
                command, self._seconds, {**probe_environment(), **variables}, stdin=reading
            )
        except (OSError, ValueError) as error:
            return Probed(problem=f"no process can be started: {printable(str(error), 200)}")
        finally:
            os.close(reading)
            os.close(lifeline)
        self._stuck = done.stuck
        if done.status is None:
            return Probed(problem=f"the CUDA driver did not answer within {self._seconds:g} s")
        return _read(done.status, done.output)


def _read(status: int, output: bytes) -> Probed:
    last = output.strip().rpartition(b"\n")[2]
    with suppress(msgspec.MsgspecError):
        return _harmless(msgspec.json.decode(last, type=Probed))
    end = f"ended with status {status}: {last.decode('utf-8', 'replace')}"
    if status < 0:
        end = f"died of signal {-status} ({signal.strsignal(-status)})"
    return Probed(problem=f"the process that asked it {printable(end, 200)}")


def _harmless(probed: Probed) -> Probed:
    devices = probed.devices and tuple(
        ProbedDevice(*(printable(text, 96) for text in msgspec.structs.astuple(device)))
        for device in probed.devices
    )
    return Probed(devices, probed.problem and printable(probed.problem, 200))
