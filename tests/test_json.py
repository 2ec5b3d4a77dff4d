"""`gputop --json`: every value is the scenario's, in the documented unit; null is unknown.

What is expected is worked out here from the scenario alone, by the table below.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from fractions import Fraction
from typing import Any

import psutil
import pytest

from tests.agent.driving import SECTIONS, Json, plain
from tests.conftest import ME, NESTED, MachineFactory, rest_long
from tests.driver import Machine

pytestmark = pytest.mark.system

GPUTOP_JSON = [sys.executable, "-m", "gputop", "--json"]
SECOND = 2.5
"""At which the clock of the scenarios stands: before anything fails in those where it does."""
WITHOUT_DRIVER = {"init-hang", "mismatch", "no-driver", "no-gpu", "no-permission"}
MIB = 2**20

GPU_FIELDS = [
    "index",
    "uuid",
    "name",
    "pci_bus_id",
    "memory_total",
    "memory_used",
    "memory_free",
    "memory_reserved",
    "utilization",
    "memory_utilization",
    "temperature",
    "power",
    "power_limit",
    "sm_clock",
    "memory_clock",
    "fan",
    "pstate",
    "stale_for",
]
PROCESS_FIELDS = [
    "pid",
    "start_ticks",
    "start_time",
    "user",
    "command",
    "gpu_uuid",
    "gpu_memory",
    "sm_utilization",
    "cpu",
    "rss",
    "type",
]
FRAME_FIELDS = ["schema", "host", "time", "driver_version", "cuda_version", "gpus", "processes"]

Range = tuple[int, int]

# Field, where the scenario has it, what of the driver's figures can be true, and their unit.
TABLE: list[tuple[str, str, Range, Fraction | int]] = [
    ("utilization", "utilization.gpu", (0, 100), Fraction(1, 100)),
    ("memory_utilization", "utilization.memory", (0, 100), Fraction(1, 100)),
    ("temperature", "temperature", (-50, 250), 1),
    ("power", "power.usage", (0, 20_000_000), Fraction(1, 1000)),
    ("power_limit", "power.enforced", (1, 20_000_000), Fraction(1, 1000)),
    ("sm_clock", "clocks.sm", (0, 20_000), 10**6),
    ("sm_clock_max", "max_clocks.sm", (1, 20_000), 10**6),
    ("memory_clock", "clocks.memory", (0, 20_000), 10**6),
    ("fan", "fan", (0, 200), Fraction(1, 100)),
    ("pstate", "pstate", (0, 15), 1),
    ("ecc_uncorrected", "ecc.uncorrected", (0, 2**63 - 1), 1),
    ("minor", "minor", (0, 255), 1),
]


def number(value: Any) -> int | None:
    """A value of a scenario at SECOND, cropped to a whole number as the driver tells it."""
    if isinstance(value, dict) and "wave" in value:
        low, high, period, phase = (*value["wave"], 0)[:4]
        turn = (SECOND / period + phase) % 1
        return int(low + (high - low) * (2 * turn if turn < 0.5 else 2 - 2 * turn))
    if isinstance(value, dict):
        return int([figure for second, figure in value["steps"] if second <= SECOND][-1])
    return None if value is None else int(value)


def at(gpu: Json, path: str) -> int | None:
    """The number at a path such as `clocks.sm`."""
    value: Any = gpu
    for key in path.split("."):
        value = None if value is None else value.get(key)
    figure: int | None = number(value)
    return figure


def expected_memory(gpu: Json, era: int) -> Json:
    """Drivers without the second call count what is reserved as used, and do not tell it."""
    total, used = at(gpu, "memory.total"), at(gpu, "memory.used")
    fields: Json = dict.fromkeys(f"memory_{name}" for name in ("total", "used", "free", "reserved"))
    if total is None or used is None:
        return fields
    reserved = at(gpu, "memory.reserved") or 0
    free = max(0, total - (used + reserved) % 2**64)
    if era < 535:
        used, told_reserved = used + reserved, None
    else:
        told_reserved = reserved
    most = total if 0 < total < 2**63 else 2**63 - 1
    fields["memory_total"] = total if 0 < total < 2**63 else None
    fields["memory_used"] = used if used <= most else None
    fields["memory_free"] = free if free <= most else None
    fields["memory_reserved"] = told_reserved
    return fields


MULTIPROCESSORS = {
    "NVIDIA H200": 132,
    "NVIDIA GH200 480GB": 132,
    "NVIDIA H100 80GB HBM3": 132,
    "NVIDIA GeForce RTX 2080 Ti": 68,
    "NVIDIA GeForce RTX 3090": 82,
    "NVIDIA GeForce RTX 4080 SUPER": 80,
    "NVIDIA GeForce RTX 4090": 128,
    "NVIDIA L40S": 142,
    "NVIDIA GB10": 48,
}
"""As NVIDIA's data sheets have them."""


def expected_parts(gpu: Json, era: int) -> Json:
    """Cores from R470 on, MIG devices only in MIG mode."""
    cores = gpu.get("cores") if era >= 535 else None
    fields: Json = {"cores": cores, "sm": None if cores is None else MULTIPROCESSORS[gpu["name"]]}
    mig = gpu.get("mig") if era >= 450 else None
    fields["mig_mode"] = None if mig is None else mig["mode"] == 1
    fields["mig"] = None
    if mig is not None and mig["mode"] == 1:
        wanted = ("uuid", "gi", "ci", "profile")
        devices = mig.get("devices", [])
        fields["mig"] = [{name: device[name] for name in wanted} for device in devices if device]
    return fields


def expected_gpu(index: int, gpu: Json, era: int) -> Json:
    fields: Json = {
        "index": index,
        "uuid": gpu["uuid"],
        "name": gpu["name"],
        "pci_bus_id": gpu["pci"]["bus_id"],
        "listed": "none" if gpu.get("compute") is None else "ours" if NESTED else "all",
        "state": "answers",
        "stale_for": None,
        "error": None,
        "idle_for": None,
        "slurm_job": None,
        "numa_node": at(gpu, "gpu_numa") if era >= 580 else None,
    }
    for field, path, (low, high), unit in TABLE:
        told = at(gpu, path)
        fields[field] = float(told * unit) if told is not None and low <= told <= high else None
    for field in ("persistence_mode", "display_active", "accounting_mode"):
        fields[field] = None if gpu.get(field) is None else gpu[field] == 1
    modes = ["default", "exclusive_thread", "prohibited", "exclusive_process"]
    fields["compute_mode"] = None if gpu.get("compute_mode") is None else modes[gpu["compute_mode"]]
    return {**fields, **expected_memory(gpu, era), **expected_parts(gpu, era)}


OTHERS = {"memory_utilization": "mem", "encoder_utilization": "enc", "decoder_utilization": "dec"}
UNSAMPLED: Json = {"sm_utilization": None, **dict.fromkeys(OTHERS)}


def expected_unaccounted(gpu: Json, used: int | None, processes: dict[Any, Json]) -> int | None:
    """What the rows of the GPU leave over; nothing is known where the system manages its memory."""
    if at(gpu, "gpu_numa") is not None:
        return None
    held: list[Any] = [row["gpu_memory"] for row in processes.values()]
    if used is None or gpu.get("compute") is None or None in held:
        return None
    return max(0, used - int(sum(held)))


def expected_processes(gpu: Json, era: int, pids: dict[str, int]) -> dict[Any, Json]:
    """Of one GPU, by pid and MIG instance."""
    found: dict[Any, Json] = {}
    total = at(gpu, "memory.total")
    lists = {"mps": "M", "compute": "C", "graphics": "G"}
    for name, letter in lists.items():
        for entry in (gpu.get(name) or []) if era >= 535 or name != "mps" else []:
            key = (pids[entry["pid"]], entry.get("gi"), entry.get("ci"))
            row = found.setdefault(key, {"types": [], "gpu_memory": None, **UNSAMPLED})
            row["types"].append(letter)
            used = number(entry.get("used"))
            if used is not None and used < 2**63 and (not total or used <= total):
                row["gpu_memory"] = max(used, row["gpu_memory"] or 0)
            sm = number(entry.get("sm"))
            fresh = "sample_time" not in entry and gpu.get("samples") is not None
            if sm is not None and sm <= 100 and fresh:
                row["sm_utilization"] = sm / 100
                for field, name in OTHERS.items():
                    row[field] = (number(entry.get(name)) or 0) / 100
    for row in found.values():
        row["type"] = "+".join(row.pop("types"))
    return found


def look(here: Machine) -> Json:
    done = here.run(GPUTOP_JSON)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert done.stdout.endswith("}\n")
    frame: Json = json.loads(done.stdout)
    return frame


def check_values(frame: Json, here: Machine) -> None:
    """tests/test_json_sections.py has every scenario held against it."""
    gpus, era = here.scenario["gpus"], here.scenario["era"]

    assert set(FRAME_FIELDS) <= set(frame)
    assert frame["problem"] is None
    assert frame["demo"] is False
    assert frame["schema"] == 3
    assert frame["driver_version"] == here.scenario["driver_version"]
    cuda = here.scenario["cuda_version"]
    assert frame["cuda_version"] == f"{cuda // 1000}.{cuda % 1000 // 10}"

    assert len(frame["gpus"]) == len(gpus)
    for index, gpu in enumerate(gpus):
        told = plain(frame["gpus"][index])
        assert set(GPU_FIELDS) <= set(told)
        assert told.pop("holders_known") in (None, True)
        assert ours(told.pop("holders"), here) == []
        unaccounted = told.pop("memory_unaccounted")
        listed = expected_processes(gpu, era, here.pids)
        assert unaccounted == expected_unaccounted(gpu, told["memory_used"], listed)
        assert told == expected_gpu(index, gpu, era)

    pids = here.pids
    by_gpu = {gpu["uuid"]: expected_processes(gpu, era, pids) for gpu in gpus}
    assert len(frame["processes"]) == sum(map(len, by_gpu.values()))
    commands = {
        pids[name]: process["command"] for name, process in here.scenario["processes"].items()
    }
    for told in frame["processes"]:
        assert set(PROCESS_FIELDS) <= set(told)
        key = (told["pid"], told["gpu_instance"], told["compute_instance"])
        expected = by_gpu[told["gpu_uuid"]].pop(key)
        assert {field: told[field] for field in expected} == expected
        check_facts(told, commands[told["pid"]])


def ours(holders: list[Json], here: Machine) -> list[Json]:
    """Without those of other tests that run now: a /dev/nvidia0 in a container is one to all."""
    return [opener for opener in holders if opener["pid"] in here.pids.values()]


def complete_look(here: Machine) -> Json:
    """A look in which all processes of the machine could be looked at for holders of GPUs, and all
    of the scenario's for what they are: tests beside this one have some that take the whole time
    for that."""
    while True:
        frame = look(here)
        if all(gpu["holders_known"] is not False for gpu in frame["gpus"]) and all(
            process["origin"] is not None for process in frame["processes"]
        ):
            return frame


def check_facts(told: Json, command: list[str]) -> None:
    """What is known of a process apart from its GPU."""
    known = psutil.Process(told["pid"])
    assert told["user"] == ME
    assert told["start_time"] == pytest.approx(known.create_time(), abs=1.1)
    assert told["rss"] == pytest.approx(known.memory_info().rss, abs=MIB)
    assert told["parent"] == os.getpid()
    assert [pid for pid, _ in told["origin"].get("ancestors", [])[:1]] == [
        pid
        for pid in [os.getpid()]
        if pid > 1  # the first process is not told of
    ]
    assert (told["threads"], told["idle_for"], told["elsewhere"]) == (1, None, False)
    assert told["state"] == "S"
    assert 0 <= told["cpu"] < 0.5
    written = " ".join(command)
    if written.isascii() and written.isprintable() and written.strip() and len(written) < 4096:
        assert told["command"] == written
    else:
        check_harmless(told["command"])


HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls; what is invisible; what reorders; halves of characters."""


def check_harmless(text: str) -> None:
    assert not HARMFUL.search(text)
    assert len(text) <= 4096


def test_garbage_in_figures(machine: MachineFactory) -> None:
    """The scenario of garbage once more, without any rule: figures as they shall be."""
    here = machine({"base": "garbage", "frozen_at": SECOND})
    zero, one, two = look(here)["gpus"][:3]
    unknown = "utilization memory_utilization sm_clock memory_clock sm_clock_max pstate fan"
    for gpu in (zero, one, two):
        assert {gpu[field] for field in unknown.split()} == {None}
        assert gpu["ecc_uncorrected"] is None
        assert gpu["power_limit"] is None
    assert [gpu["temperature"] for gpu in (zero, one, two)] == [None, 0.0, None]
    assert [gpu["power"] for gpu in (zero, one, two)] == [None, 0.0, 0.001]
    assert [gpu["memory_used"] for gpu in (zero, one)] == [None, 1]


def test_units_in_figures(machine: MachineFactory) -> None:
    """One GPU written out, so that a unit wrong both above and in gputop is seen."""
    here = machine({"base": "h200x8", "frozen_at": SECOND})
    gpu = look(here)["gpus"][0]
    assert (gpu["memory_total"], gpu["memory_used"]) == (150754820096, 104857600000)
    assert (gpu["memory_free"], gpu["memory_reserved"]) == (45253394432, 643825664)
    assert (gpu["utilization"], gpu["memory_utilization"]) == (0.89, 0.42)
    assert (gpu["temperature"], gpu["power_limit"]) == (36.0, 700.0)
    assert gpu["power"] == pytest.approx(208.695)
    assert (gpu["sm_clock"], gpu["memory_clock"]) == (1_980_000_000, 3_201_000_000)
    assert (gpu["pstate"], gpu["fan"], gpu["index"]) == (0, None, 0)
    assert gpu["uuid"] == "GPU-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500"


def test_the_host(machine: MachineFactory) -> None:
    before = time.time()
    frame = look(machine({}))
    host = frame["host"]
    assert before - 1 < frame["time"] < time.time() + 1
    assert host["name"] == socket.gethostname()
    assert host["boot_id"] == open("/proc/sys/kernel/random/boot_id").read().strip()  # noqa: SIM115
    assert host["cpu_count"] == os.cpu_count()
    assert host["memory_total"] == psutil.virtual_memory().total
    assert 0 < host["memory_used"] < host["memory_total"]


def test_hostile_command_lines(machine: MachineFactory) -> None:
    """The bytes themselves: a line of plain JSON, whatever processes call themselves."""
    here = machine("hostile")
    done = here.run(GPUTOP_JSON)
    assert done.stdout.count("\n") == 1
    check_harmless_bytes(done.stdout.removesuffix("\n"))
    frame = json.loads(done.stdout)
    commands = {process["pid"]: process["command"] for process in frame["processes"]}
    assert set(commands) == set(here.pids.values())
    for command in commands.values():
        check_harmless(command)
    shown = {name: commands[pid] for name, pid in here.pids.items()}
    assert shown["close-tag"] == "[/]"
    assert shown["link"] == "[@click=app.quit]x[/] --lr"
    assert shown["escape"] == "\ufffd[2J\ufffd[31mred \ufffd]0;title\ufffd \ufffd31m"
    assert shown["bytes"].endswith("caf\ufffd.py")
    assert shown["wide"].startswith("訓練.py ")
    assert shown["long"].startswith("python xxxx")


def check_harmless_bytes(line: str) -> None:
    assert not HARMFUL.search(line)


@rest_long("encoding", "ascii", "latin-1", "utf-8")
def test_json_is_utf8_whatever_the_locale_says(encoding: str, machine: MachineFactory) -> None:
    here = machine("hostile")
    here.env["PYTHONIOENCODING"] = encoding
    frame = look(here)
    assert any("訓練" in process["command"] for process in frame["processes"])


def test_the_whole_frame_has_no_more_than_the_documented_keys(machine: MachineFactory) -> None:
    """A new key needs a word in model/machine/frame.py and here."""
    frame = look(machine("h200x8"))
    assert set(frame) == {
        *FRAME_FIELDS,
        "interval",
        "links",
        "topology",
        "problem",
        "demo",
        "reported_by",
        "reports",
    }
    more = "minor sm_clock_max accounting_mode persistence_mode display_active compute_mode"
    more += " ecc_uncorrected"
    assert set(frame["gpus"][0]) == {
        "free",
        "not_free",
        *GPU_FIELDS,
        *SECTIONS,
        *more.split(),
        "mig_mode",
        "mig",
        "cores",
        "sm",
        "listed",
        "memory_unaccounted",
        "numa_node",
        "idle_for",
        "holders",
        "holders_known",
        "reservation",
        "slurm_job",
        "state",
        "error",
    }
    more = "gpu_instance compute_instance state parent cuda_context origin threads io_read io_write"
    more += " idle_for elsewhere " + " ".join(OTHERS)
    assert set(frame["processes"][0]) == {*PROCESS_FIELDS, *more.split()}
