"""Receives the driver's events, above all XIDs, in one thread for all GPUs."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pynvml

from gputop.agent.errors import log_once
from gputop.agent.gpu.driver import GPU_GONE
from gputop.agent.gpu.reader import GpuReader
from gputop.model.machine.sections import Xid

_XID = pynvml.nvmlEventTypeXidCriticalError
_WANTED = _XID | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeGpuRecoveryAction
_MOST = 20
"""XIDs that are kept for each GPU: a broken program makes hundreds a second."""
_WAIT_MS = 1000
"""Milliseconds in one wait, and so the longest time until the thread notices its end."""
_AGAIN = 5.0
"""Seconds between two attempts, after a lost GPU has broken the set of events."""

_Indices = dict[int | None, int | None]
"""NVML indices by the address of a GPU's handle; None for a GPU that reports no XIDs."""


class XidEvents:
    """Keeps the XIDs of GPUs that have answered. The driver may hold its thread, so no tick waits.

    After any event of a GPU, its reader reads all values again.
    """

    def __init__(self, devices: Sequence[GpuReader]) -> None:
        self._devices = devices
        self.heard: dict[int, tuple[Xid, ...]] = {}
        """The XIDs of each GPU that reports them, by its index, the newest last."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, and wait a little until it has left the driver."""
        self._over.set()
        self._thread.join(_WAIT_MS / 1000)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._listen()
            except pynvml.NVMLError as error:
                if error.value not in GPU_GONE:  # refused, or there is no driver any more
                    self.heard = {index: xids for index, xids in self.heard.items() if xids}
                    return
            except Exception as error:  # noqa: BLE001 - it tries again, after a while
                log_once("events", error)
            if not self.heard:
                return
            self._over.wait(_AGAIN)

    def _listen(self) -> None:
        """Handle events until the end; return if no GPU reports any. NVMLError if the driver fails.

        A GPU that answers late, as one without persistence mode does, is registered then.
        """
        events, indices = pynvml.nvmlEventSetCreate(), _Indices()
        try:
            while not self._over.is_set():
                late = self._register(events, indices)
                if set(indices.values()) - {None}:
                    self._wait(events, indices)
                elif late:
                    self._over.wait(_WAIT_MS / 1000)
                else:
                    return
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def _register(self, events: Any, indices: _Indices) -> bool:
        """Register the GPUs that are not yet; return whether one has not answered or is lost."""
        late = False
        for device in self._devices:
            handle = device.handle
            if handle is None:  # asking for it may block
                late = True
            elif _address(handle) not in indices:
                reports = _add(handle, events)
                if reports is None:
                    late = True
                    continue
                indices[_address(handle)] = device.index if reports else None
                if reports:
                    self.heard.setdefault(device.index, ())
        return late

    def _wait(self, events: Any, indices: _Indices) -> None:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                raise
            return
        index = indices.get(_address(event.device))
        if index is None:
            return
        if event.eventType == _XID:
            xid = Xid(int(event.eventData), round(time.time(), 3))
            self.heard[index] = (*self.heard[index], xid)[-_MOST:]
        self._devices[index].refresh()


def _add(handle: Any, events: Any) -> bool | None:
    """Register a GPU in a set of events; return whether it reports XIDs, None if it is lost."""
    try:
        types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & _WANTED
        if types & _XID:
            pynvml.nvmlDeviceRegisterEvents(handle, types, events)
        return bool(types & _XID)
    except pynvml.NVMLError as error:
        return None if error.value in GPU_GONE else False


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
