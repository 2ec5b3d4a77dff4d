"""What the driver says of the card as a whole."""

from __future__ import annotations

from typing import ClassVar

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.section import Ask, Fields, plain_call
from gputop.model.sections import Health

_RECOVERY_ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_ACTIONS: dict[float | None, str] = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "gpu_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "node_reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain_p2p",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""By NVML_GPU_RECOVERY_ACTION_*; the last of them are newer than the oldest nvidia-ml-py."""
_STATES = ("not_supported", "not_started", "in_progress", "completed")
"""By NVML_GPU_FABRIC_STATE_*."""
_fabric = plain_call("nvmlDeviceGetGpuFabricInfoV", version=2, words=8)
_repair = plain_call("nvmlDeviceGetRepairStatus", version=1, words=2)
_unrepairable = plain_call("nvmlDeviceGetUnrepairableMemoryFlag_v1", version=1, words=1)


class HealthSection:
    """Recovery action, fabric, repairs. XIDs are events, and come from `agent.gpu.events`."""

    name: ClassVar[str] = "health"
    every: ClassVar[float] = 5.0
    fields: ClassVar[tuple[int, ...]] = (_RECOVERY_ACTION,)

    def read(self, ask: Ask, fields: Fields, now: float) -> Health | None:
        """As of now; None where the driver has nothing of it."""
        unrepairable = ask(_unrepairable)
        health = Health(
            recovery_action=_ACTIONS.get(fields.get(_RECOVERY_ACTION)),
            fabric_state=_fabric_state(ask),
            repair_pending=_pending(ask(_repair)),
            unrepairable_memory=None if unrepairable is None else sanity.flag(unrepairable[0]),
        )
        return None if health == Health() else health


def _fabric_state(ask: Ask) -> str | None:
    """The status counts only once the state is complete (nvml.h, nvmlGpuFabricInfo_v2_t)."""
    info = ask(_fabric)
    if info is None:
        return None
    *_uuid, status, _clique, state, _mask = info
    known = _STATES[state] if state < len(_STATES) else None
    return "failed" if known == "completed" and status != pynvml.NVML_SUCCESS else known


def _pending(repairs: list[int] | None) -> bool | None:
    """Of channels, or of TPCs."""
    flags = [sanity.flag(one) for one in repairs or ()]
    if True in flags:
        return True
    return None if not flags or None in flags else False
