"""Which MIG devices a new job should take, where it can have no whole GPU.

They are chosen as GPUs are (`model.cuda.pick`): by what speaks against each, then those of one
profile, then those with most memory. Their load counts only where GPM tells it. CUDA shows a
process one device of each GPU instance, and before R570 one device at all (NVIDIA's MIG User Guide,
"CUDA Device Enumeration"). They are named by their UUIDs: no number is documented to name one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from gputop.model.cuda.enumeration import MAX_INSTANCES, normalize_bus_id, rules_for, shown
from gputop.model.cuda.export import quoted
from gputop.model.cuda.inventory import frame_devices
from gputop.model.cuda.pick import (
    FAR,
    LASTING,
    GpuPick,
    MigSlice,
    PickedValue,
    PickRequest,
    Refusal,
    choose,
    export_for,
    mapping_of,
    slices_of,
    too_busy,
    too_little,
    value_for,
    waived_codes,
)
from gputop.model.health.free import free_slices, objections
from gputop.model.machine.environment import NAME
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.text import GIB, size


def choose_any(frames: Sequence[Frame], wanted: PickRequest) -> GpuPick:
    """Pick GPUs, or where none can be had, now or later, MIG devices. UsageError as `choose`."""
    whole = choose(frames, wanted)
    is_divided = any(gpu.mig for gpu in frames[-1].gpus)
    return _slices(frames, wanted, whole) if is_divided and not whole.possible else whole


def _slices(frames: Sequence[Frame], wanted: PickRequest, whole: GpuPick) -> GpuPick:
    """Return a pick of MIG devices."""
    frame, sight = frames[-1], _in_sight(frames[-1], wanted)
    able: dict[object, MigSlice] = {}
    perhaps, reasons = set[object](), dict[str, str]()
    for part in slices_of(frame):
        refusal = _slice_refusal(frames, part, wanted, sight)
        if refusal is None or not refusal.lasts:
            perhaps.add(part.id[:2])
        if refusal is None:
            able.setdefault(part.id[:2], part)
        else:
            reasons[part.number] = refusal.text
    most = MAX_INSTANCES if rules_for(frame_devices(frame), frame.driver_version) == ("new",) else 1
    chosen = _best_slices([*able.values()], wanted) if wanted.count <= most else None
    return msgspec.structs.replace(
        whole,
        gpus=None if chosen is None else tuple(part.gpu for part in chosen),
        slices=chosen,
        slice_reasons=reasons,
        suitable=min(len(able), most),
        free=free_slices(frame).free,
        possible=len(perhaps) >= wanted.count and wanted.count <= most,
        note=None if sight is None else _note(wanted, sight),
    )


def _slice_refusal(
    frames: Sequence[Frame], part: MigSlice, wanted: PickRequest, sight: Collection[object] | None
) -> Refusal | None:
    frame, device, least = frames[-1], part.device, wanted.min_free or 0
    if sight is not None and part.id not in sight:
        return Refusal("your own CUDA_VISIBLE_DEVICES hides it", lasts=True)
    words = (part.number, device.uuid or "", str(part.gpu.index), part.gpu.uuid or "")
    if any(word and word in words for word in wanted.exclude):
        return Refusal("it is excluded", lasts=True)
    if device.uuid is None:
        return Refusal("its UUID is not known")
    if (device.memory_total or least) < least:
        return Refusal(f"it has only {size(device.memory_total)} of memory", lasts=True)
    waived = waived_codes(wanted)
    against = next((o for o in objections(frame, part.gpu, device) if o.code not in waived), None)
    if against is not None:
        return Refusal(against.text, lasts=against.code in LASTING)
    text = too_little(_unused(device), least)
    limit, peak = wanted.max_utilization, _slice_peak(frames, part)
    if limit is not None and peak is not None:  # only GPM tells it
        text = text or too_busy(peak, limit)
    return None if text is None else Refusal(text)


def _in_sight(frame: Frame, wanted: PickRequest) -> dict[object, MigSlice] | None:
    """Return the MIG devices that the caller's own variables are sure to leave; None: all."""
    if wanted.value is None:
        return None
    mapping = mapping_of(frame, wanted.value, wanted.order)
    visible = mapping.visible if mapping.visible is not None else mapping.visible_set
    ids = {device.id for device in visible or ()}
    return {part.id: part for part in slices_of(frame) if part.id in ids}


def _note(wanted: PickRequest, sight: dict[object, MigSlice]) -> str:
    left = ", ".join(f"GPU {part.number}" for part in sight.values()) or "no slice"
    return f"your own CUDA_VISIBLE_DEVICES={shown(wanted.value or '')} leaves {left}"


def _unused(device: MigDevice) -> int | None:
    if device.memory_total is None or device.memory_used is None:
        return None
    return device.memory_total - device.memory_used


def _slice_peak(frames: Sequence[Frame], part: MigSlice) -> float | None:
    """Return the highest load of a MIG device's graphics engine that GPM reports, if any."""
    devices = (device for frame in frames for gpu in frame.gpus for device in gpu.mig or ()
               if device.uuid == part.device.uuid)  # fmt: skip
    loads = [device.activity.graphics for device in devices if device.activity]
    return max((load for load in loads if load is not None), default=None)


def _best_slices(able: Sequence[MigSlice], wanted: PickRequest) -> tuple[MigSlice, ...] | None:
    """Return those with most memory, of one profile if there are enough, in the order in which CUDA
    counts them."""
    kinds: dict[tuple[str | None, str | None], list[MigSlice]] = {}
    for part in sorted(able, key=_slice_rank):
        kinds.setdefault((part.gpu.name, part.device.profile), []).append(part)
    groups = [group for group in kinds.values() if len(group) >= wanted.count]
    if not groups and not wanted.same_model and len(able) >= wanted.count:
        groups = [sorted(able, key=_slice_rank)]
    if not groups:
        return None
    places = {part.id: position for position, part in enumerate(able)}
    chosen = min((group[: wanted.count] for group in groups), key=lambda g: _slice_rank(g[0]))
    bus = {part.id: normalize_bus_id(part.gpu.pci_bus_id) or FAR for part in chosen}
    return tuple(sorted(chosen, key=lambda part: (bus[part.id], places[part.id])))


def _slice_rank(part: MigSlice) -> tuple[object, ...]:
    free = _unused(part.device) or 0
    bus = normalize_bus_id(part.gpu.pci_bus_id) or FAR
    return -(part.device.memory_total or 0), -(free // GIB), bus, part.id


def export_line(frame: Frame, pick: GpuPick, order: str | None) -> str:
    """Return the line that gives what is picked to all that a shell starts, as `export_for`; empty
    if no value is exact."""
    if not pick.slices:
        return export_for(frame, pick.gpus[0], order) if pick.gpus else ""
    value = quoted(value_of(frame, pick, order).text or "")
    return f"export {NAME}={value}" if value else ""


def value_of(frame: Frame, pick: GpuPick, order: str | None, by_uuid: bool = False) -> PickedValue:
    """Name what is picked, as `value_for` does; MIG devices always by their UUIDs."""
    if not pick.slices:
        return value_for(frame, pick.gpus or (), order, by_uuid)
    text = ",".join(pick.uuids)
    mapping = mapping_of(frame, text, order)
    if [device.id for device in mapping.visible or ()] != [part.id for part in pick.slices]:
        return PickedValue(None, f"what CUDA makes of {text} is not known: {mapping.because}")
    note = None if mapping.certainty == "exact" and mapping.documented else mapping.because
    return PickedValue(text, note)
