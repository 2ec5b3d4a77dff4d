"""What CUDA_VISIBLE_DEVICES means by gputop, beside what a child with that environment hears from
cuDeviceGetCount, cuDeviceGetUuid and cuDeviceGetPCIBusId.

The child and the comparison are those of `gputop map --verify`. Where gputop claims nothing, the
driver's answer is a fact for the report: one that the guides leave open.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gputop.agent.probe import Prober
from gputop.model.cuda.inventory import Inventory, read_inventory
from gputop.model.cuda.mapping_query import result_of
from gputop.model.machine.probed import Probed
from tests.gpu.conftest import GPUTOP, Frame
from tests.gpu.report import Report, Row

pytestmark = [pytest.mark.gpu, pytest.mark.system, pytest.mark.timeout(300)]

_AT_ONCE, _SECONDS = 4, 30.0
"""Children at a time, and seconds for each: the driver may have to wake the GPUs."""
ORDERS = (None, "PCI_BUS_ID", "FASTEST_FIRST")
OTHER_ORDERS = ("pci_bus_id", "PCI_BUS", "")
FORMS = (
    "", " ", "-1", "-1,0", "0,-1", "0,-1,0", "0,0", "00", "0,00", "-0", "0,-0", "+0", "0x0", "0x1",
    "08", "010", "0.5", "0e1", "0-2", "0:1", "0;1", "[0]", '"0"', "'0'", "０", "0，1", "cuda:0",
    "all", "none", "void", "NoDevFiles", "None", "0,", ",0", "0,,0", ",", " 0", "0 ", "\t0", "0 1",
    "0,junk,0", "junk,0", "99", "0,99,0", "99,0", "2147483648", "4294967296", "-4294967296",
    "99999999999999999999", "GPU-", "GPU", "GPU-0", "MIG-", "MIG-0",
)  # fmt: skip
"""Values for any machine; what they name depends on no order."""


def permutations(count: int) -> Iterator[str]:
    """Yield values for several GPUs."""
    last, every = count - 1, [str(index) for index in range(count)]
    yield ",".join(reversed(every))
    yield ",".join(every[1:] + every[:1])
    yield from (f"{last}", f"{last},0", f"0, {last}", f"1,1,{last}", f"0,{last},0", f"{count},0")
    yield from (f"0,{count},{last}", f"{last},-1,0", f"1gpu{last},{last}ampere", ",".join(every))


def uuid_forms(uuid: str, other: str) -> Iterator[str]:
    """Yield values with the UUID of a GPU or MIG device, and of another one (or the same)."""
    short = uuid[:12]
    yield from (
        uuid,
        uuid.upper(),
        uuid.lower(),
        uuid[4:],
        short,
        short + "-",
        uuid[:5],
        uuid + "0",
    )
    yield from (f" {uuid}", f"{uuid} ", f"{uuid},0", f"0,{uuid}", f"{uuid},{uuid}", f"{uuid},-1")
    yield from (f"{uuid},{short}", f"{short},GPU-zzz,{short}", f"{uuid},{other}")
    yield from (f"{other},{uuid}", f"{other}, {uuid}")


def table_for(inventory: Inventory) -> list[tuple[str | None, str | None]]:
    """Return values and orders for a machine; None: unset."""
    gpus = [device for device in inventory.devices if device.uuid]
    values: list[str | None] = [None, "0"]
    if len(gpus) > 1:
        values += permutations(len(gpus))
    uuids = [part.own_uuid for gpu in gpus for part in gpu.parts() if part.own_uuid]
    for several in ([gpu.uuid or "" for gpu in gpus], uuids):
        if several:
            values += uuid_forms(several[0], several[-1])
    for gpu in gpus:
        values += (f"MIG-{gpu.uuid}/{part.gi}/{part.ci}" for part in gpu.mig or ())
    asked = [(value, order) for order in ORDERS for value in values]
    asked += [(value, order) for order in OTHER_ORDERS for value in (None, "0")]
    return list(dict.fromkeys([*asked, *((value, "PCI_BUS_ID") for value in FORMS)]))


def shown(variable: str | None) -> str:
    return "unset" if variable is None else repr(variable)


def words(probed: Probed, inventory: Inventory) -> str:
    """Return what the driver says, as a cell of a table."""
    if probed.devices is None:
        return f"not asked: {probed.problem}"
    parts = [part for device in inventory.devices for part in (device, *device.parts())]
    labels = {(part.own_uuid or "")[4:].lower(): part.label for part in parts}
    return ", ".join(labels.get(device.uuid, device.uuid) for device in probed.devices) or "nothing"


@pytest.fixture(scope="module")
def inventory(frame: Frame) -> Inventory:
    return read_inventory(json.dumps(frame), "the frame")


def test_every_value(inventory: Inventory, report: Report) -> None:
    wrong, asked = list[str](), table_for(inventory)
    unclaimed: dict[tuple[str, str], list[str]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda of: Prober(_SECONDS).ask(of[0], of[1], inventory), asked))
    for (value, order), probed in zip(asked, answers, strict=True):
        result = result_of(value, order, inventory, [probed])
        # What gputop says without the driver's order, which an unset value tells.
        alone = result.contradiction or result.probe_result
        assert alone is not None
        if alone.ok is False or probed.devices is None:
            wrong.append(f"{shown(value)} under {shown(order)}: {alone.reason}")
        elif alone.ok is None:
            unclaimed.setdefault((shown(value), words(probed, inventory)), []).append(shown(order))
    rows: list[Row] = [
        {"value": value, "driver": said, "orders": ", ".join(orders)}
        for (value, said), orders in unclaimed.items()
    ]
    report.note("mapping", {"values and orders": len(asked)})
    if rows:
        report.table("mapping", "What the driver says where gputop claims nothing", rows)
    report.differ("mapping", wrong)


def test_the_command(inventory: Inventory, report: Report) -> None:
    count = len(inventory.devices)
    first, wrong = inventory.devices[0].uuid or "", []
    for value in dict.fromkeys((f"{count - 1},0", "0", first, "-1")):
        for order in ORDERS[:2]:
            words = [*GPUTOP, "map", value, "--json", "--verify"]
            words += ["--order", order] if order else []
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1), done.stderr
            verified = json.loads(done.stdout)["verified"]
            if verified is None or verified["ok"] is False or "against" in verified["reason"]:
                wrong.append(f"gputop map {value} under {order}: {verified}")
    report.differ("gputop map", wrong)
