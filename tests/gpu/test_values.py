"""What gputop says of each GPU and process, beside nvidia-smi in the same second.

A frame is taken between two answers of nvidia-smi, and each of its values has to lie between
theirs. What moves too fast for that has five rounds in which to do so once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from gputop.model.health.throttle import THROTTLE_REASONS
from tests.gpu.conftest import Frame, gputop_frame, query, smi
from tests.gpu.report import Report
from tests.gpu.values import FIELDS, MIB, VALUES, Value, agree, parsed, said, unread

pytestmark = [pytest.mark.gpu, pytest.mark.system, pytest.mark.timeout(120)]

_ROUNDS = 5
_REASON_TAGS = ("clocks_event_reasons/clocks_event_reason_",
                "clocks_throttle_reasons/clocks_throttle_reason_")  # fmt: skip


class Smi(NamedTuple):
    """One answer of nvidia-smi."""

    log: Element
    rows: dict[str, dict[str, str]]
    """Those of --query-gpu by UUID."""

    @classmethod
    def read(cls, fields: tuple[str, ...]) -> Smi:
        rows = {row["uuid"]: row for row in query("gpu", *fields)}
        return cls(ElementTree.fromstring(smi("-q", "-x")), rows)

    def gpu(self, uuid: str) -> Element:
        """Return a GPU's element; an empty one if nvidia-smi does not have it."""
        found = (gpu for gpu in self.log.iter("gpu") if gpu.findtext("uuid") == uuid)
        return next(found, Element("gpu"))

    def says(self, uuid: str, value: Value) -> Iterator[float | str | bool]:
        """Yield both of its answers, without what it does not know."""
        row = self.rows.get(uuid, {})
        answers = said(self.gpu(uuid), value), parsed(row.get(value.field, ""), value)
        return (answer for answer in answers if answer is not None)


def known_fields() -> tuple[str, ...]:
    """Return the fields that this nvidia-smi knows: it answers none if it does not know one."""
    fields = list(FIELDS)
    while True:
        try:
            query("gpu", *fields)
        except AssertionError as error:
            unknown = [field for field in fields if f'"{field}"' in str(error)]
            if not unknown:
                raise
            fields.remove(unknown[0])
        else:
            return tuple(fields)


def at(gpu: Frame, path: str) -> Any:
    """Return the value at a path with dots; None if its section is not known."""
    for name in path.split("."):
        gpu = gpu and gpu[name]
    return gpu


def reasons_of(gpu: Element) -> set[str]:
    """Return what holds the clocks back, by gputop's names."""
    tags = {name: [gpu.findtext(tag + name) for tag in _REASON_TAGS] for name in THROTTLE_REASONS}
    return {name for name, texts in tags.items() if "Active" in texts}


def rows_of(log: Element, kind: str) -> set[tuple[object, ...]]:
    """Return processes (UUID of the GPU, PID, type) or MIG devices (UUID, their two ids), each with
    its MiB, as nvidia-smi has them."""
    tags = ("pid", "type", "used_memory")
    if kind == "mig_device":
        tags = ("gpu_instance_id", "compute_instance_id", "fb_memory_usage/used")
    return {
        (gpu.findtext("uuid"), *((row.findtext(tag) or "").split(" ")[0] for tag in tags))
        for gpu in log.iter("gpu")
        for row in gpu.iter(kind)
    }


def rows_of_frame(frame: Frame, kind: str) -> set[tuple[object, ...]]:
    """Return the same, as gputop has them."""
    if kind == "mig_device":
        devices = [(gpu["uuid"], device) for gpu in frame["gpus"] for device in gpu["mig"] or ()]
        return {(uuid, str(d["gi"]), str(d["ci"]), _mib(d["memory_used"])) for uuid, d in devices}
    return {
        (row["gpu_uuid"], str(row["pid"]), row["type"], _mib(row["gpu_memory"]))
        for row in frame["processes"]
    }


def _mib(size: int | None) -> str:
    return "N/A" if size is None else str(size // MIB)


def differences(before: Smi, frame: Frame, after: Smi) -> dict[str, str]:
    """Return what differs in one round, by what it is about."""
    found = {}
    for gpu in frame["gpus"]:
        uuid, name = gpu["uuid"], f"GPU {gpu['index']}"
        for value in VALUES:
            theirs = [*before.says(uuid, value), *after.says(uuid, value)]
            ours = at(gpu, value.path)
            # What only gputop knows is no difference; the report lists it.
            if theirs and not agree(ours, theirs, value):
                said = f"gputop {ours}, nvidia-smi {sorted(set(map(str, theirs)))}"
                found[f"{name} {value.path}"] = said
        held = [reasons_of(smi.gpu(uuid)) for smi in (before, after)]
        if gpu["throttle"] and set(gpu["throttle"]["reasons"]) not in held:
            found[f"{name} throttle.reasons"] = f"{gpu['throttle']['reasons']}, nvidia-smi {held}"
    for kind in ("process_info", "mig_device"):
        shown, listed = rows_of_frame(frame, kind), rows_of(after.log, kind)
        if shown not in (rows_of(before.log, kind), listed):
            said = f"only gputop {sorted(shown - listed, key=str)}, only nvidia-smi "
            found[kind] = said + str(sorted(listed - shown, key=str))
    return found


def test_values_and_processes(frame: Frame, report: Report) -> None:
    fields = known_fields()
    wrong: dict[str, str] | None = None
    before = Smi.read(fields)
    for _ in range(_ROUNDS):
        now, after = gputop_frame(), Smi.read(fields)
        seen = differences(before, now, after)
        wrong = {what: seen[what] for what in seen if wrong is None or what in wrong}
        before = after
        if not wrong:
            break
    alone = {
        value.path
        for gpu in now["gpus"]
        for value in VALUES
        if at(gpu, value.path) is not None and not [*after.says(gpu["uuid"], value)]
    }
    first = after.gpu(now["gpus"][0]["uuid"])
    report.note("values", {
        "compared": len(VALUES) * len(now["gpus"]),
        "only gputop says": sorted(alone),
        "nvidia-smi does not know": sorted({v.field for v in VALUES if v.field} - set(fields)),
        "only the driver says": sorted(unread(first)),
    })  # fmt: skip
    report.differ("values", [f"{what}: {text}" for what, text in (wrong or {}).items()])


def test_the_machine(frame: Frame, report: Report) -> None:
    log = Smi.read(("uuid",)).log
    pairs = {
        "driver": (frame["driver_version"], log.findtext("driver_version")),
        "CUDA": (frame["cuda_version"], log.findtext("cuda_version")),
        "GPUs": (
            [gpu["uuid"] for gpu in frame["gpus"]],
            [g.findtext("uuid") for g in log.iter("gpu")],
        ),
    }
    wrong = [f"{what}: {ours}, nvidia-smi {theirs}" for what, (ours, theirs) in pairs.items()
             if ours != theirs]  # fmt: skip
    report.differ("machine", wrong)
