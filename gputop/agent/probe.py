"""Asks the CUDA driver what a CUDA_VISIBLE_DEVICES means: the only exact answer there is.

The driver reads the variable once in a process, so each question takes a child process. It makes
no context and takes no GPU memory, but may wake a sleeping GPU: ask when somebody wants to know.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec

from gputop.model.environ import NAME, ORDER
from gputop.model.inventory import Inventory
from gputop.model.probe import Probed
from gputop.model.text import printable

_CHILD = """
import ctypes, json, os
from uuid import UUID

def say(**probed):
    os.write(1, b"\\n" + json.dumps(probed).encode())
    os._exit(0)  # past the driver's own clean-up

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code == 100:  # CUDA_ERROR_NO_DEVICE
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


class Prober:
    """Asks and remembers, within `seconds` at most. For one thread."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._answers: dict[object, Probed] = {}
        self._stuck: subprocess.Popen[bytes] | None = None

    def ask(self, value: str | None, order: str | None, inventory: Inventory) -> Probed:
        """What the driver makes of the two variables (None: unset); never raises.

        An answer holds while `inventory`, this machine's, is the same; a failure is not kept.
        """
        key = (inventory.driver_version, inventory.devices, value, order)
        probed = self._answers.get(key) or self._ask({NAME: value, ORDER: order})
        if probed.devices is not None:
            self._answers[key] = probed
        return probed

    def _ask(self, variables: dict[str, str | None]) -> Probed:
        # A child that hangs in the driver may outlive SIGKILL: it gets no company.
        if self._stuck is not None and self._stuck.poll() is None:
            return Probed(problem="the CUDA driver still holds the process that asked it before")
        wanted = {**os.environ, **variables}
        try:
            child = subprocess.Popen(
                # Modules of the current directory or of site-packages cannot be in the way.
                [sys.executable, "-I", "-S", "-c", _CHILD],
                env={name: text for name, text in wanted.items() if text is not None},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Probed(problem=f"no process can be started: {printable(str(error), 200)}")
        try:
            output, errors = child.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            return Probed(problem=f"the CUDA driver did not answer within {self._seconds:g} s")
        finally:
            if child.returncode is None:
                child.kill()  # and not waited for
                self._stuck = child
            for pipe in filter(None, (child.stdout, child.stderr)):
                pipe.close()
        return _read(child.returncode, output, errors)


def _read(status: int, output: bytes, errors: bytes) -> Probed:
    try:
        return msgspec.json.decode(output.rpartition(b"\n")[2], type=Probed)
    except msgspec.MsgspecError:
        words = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    end = f"ended with status {status}: {words}"
    if status < 0:
        end = f"died of signal {-status} ({signal.strsignal(-status)})"
    return Probed(problem=f"the process that asked {printable(end, 200)}")
