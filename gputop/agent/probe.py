"""Asks the CUDA driver what a CUDA_VISIBLE_DEVICES means: the only exact answer there is.

The driver reads the variable once in a process, so each question takes a child process. It makes
no context and takes no GPU memory, but may wake a sleeping GPU: ask when somebody wants to know.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from gputop.model.environ import NAME, ORDER
from gputop.model.frame import Frame
from gputop.model.inventory import Inventory, frame_devices
from gputop.model.probed import Probed, ProbedDevice
from gputop.model.text import printable

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
"""Answers that are remembered, and questions that wait."""

_Question = tuple[str | None, str | None, Inventory]


class Prober:
    """Asks and remembers, within `seconds` at most. One thread may ask, another read `answers`."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._answers: dict[tuple[object, ...], Probed] = {}
        self._stuck: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def answers(self, inventory: Inventory) -> tuple[Probed, ...]:
        """What was answered last, failures too; the answers for another inventory are dropped."""
        now = (inventory.driver_version, inventory.devices)
        with self._lock:
            self._answers = {key: one for key, one in self._answers.items() if key[:2] == now}
            return tuple(self._answers.values())

    def ask(self, value: str | None, order: str | None, inventory: Inventory) -> Probed:
        """What the driver makes of the two variables (None: unset); never raises.

        An answer holds while `inventory`, this machine's, is the same; after a failure the driver
        is asked again.
        """
        key = (inventory.driver_version, inventory.devices, value, order)
        with self._lock:
            probed = self._answers.get(key)
        if probed is None or probed.devices is None:
            probed = self._ask({NAME: value, ORDER: order})
            probed = msgspec.structs.replace(probed, value=value, order=order)
        with self._lock:
            self._answers.pop(key, None)  # the newest is the last
            self._answers[key] = probed
            for oldest in list(self._answers)[:-_MOST]:
                del self._answers[oldest]
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
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Probed(problem=f"no process can be started: {printable(str(error), 200)}")
        lifeline, child.stdin = child.stdin, None  # which communicate() would close
        try:
            output, errors = child.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            return Probed(problem=f"the CUDA driver did not answer within {self._seconds:g} s")
        finally:
            if child.returncode is None:
                child.kill()  # and not waited for
                self._stuck = child
            for pipe in filter(None, (lifeline, child.stdout, child.stderr)):
                pipe.close()
        return _read(child.returncode, output, errors)


def _read(status: int, output: bytes, errors: bytes) -> Probed:
    try:
        return _harmless(msgspec.json.decode(output.rpartition(b"\n")[2], type=Probed))
    except msgspec.MsgspecError:
        words = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    end = f"ended with status {status}: {words}"
    if status < 0:
        end = f"died of signal {-status} ({signal.strsignal(-status)})"
    return Probed(problem=f"the process that asked {printable(end, 200)}")


def _harmless(probed: Probed) -> Probed:
    """The driver's texts, fit to print."""
    devices = probed.devices and tuple(
        ProbedDevice(*(printable(text, 96) for text in (one.uuid, one.pci_bus_id, one.name)))
        for one in probed.devices
    )
    return Probed(devices, probed.problem and printable(probed.problem, 200))


class Questions:
    """Has the driver asked for the reader of the frames, one question after the other.

    It may take its time: that is a thread's of its own, which calls `answered` after each.
    """

    def __init__(self, answered: Callable[[], None]) -> None:
        self._answered = answered
        self._prober = Prober()
        self._frame: Frame | None = None
        self._waiting: list[_Question] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def with_answers(self, frame: Frame) -> Frame:
        """The frame with what the driver answered about its GPUs."""
        self._frame = frame
        if self._thread is None:
            return frame
        return msgspec.structs.replace(frame, probed=self._prober.answers(_inventory(frame)))

    def ask(self, value: str | None, order: str | None) -> None:
        """Ask about a value, and for the order of the GPUs, which the value left unset shows.

        They are asked about the GPUs of the last frame. A question that comes again while it waits
        is asked once; of too many the oldest are dropped.
        """
        if self._frame is None:
            return
        inventory = _inventory(self._frame)
        with self._changed:
            wanted = ((value, order, inventory), (None, order, inventory))
            self._waiting = [*self._waiting, *wanted][-_MOST:]
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                question = self._waiting[0]
            self._prober.ask(*question)
            with self._changed:
                self._waiting = [one for one in self._waiting if one != question]
            self._answered()


def _inventory(frame: Frame) -> Inventory:
    return Inventory(frame_devices(frame), frame.driver_version)
