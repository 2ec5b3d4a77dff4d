"""Scenarios: what a simulated machine is, written as JSON.

    {
      "base": "h200x8",              another scenario to start from: objects merge, null is absent
      "driver_version": "580.95.05", "nvml_version": "13.580.95.05", "cuda_version": 13000,
      "era": 580,                    which symbols the library has: 390, 450, 535 or 580
      "init": {"error": "DRIVER_NOT_LOADED"},       a call override for nvmlInit*
      "latency_ms": 0.2,             of every call; "serialize": true makes calls wait in turn
      "cuda_order": [2, 0, 1],       how CUDA counts the GPUs unless by PCI bus id; who is not in it
                                     is not counted (null: as they stand in "gpus")
      "frozen_at": 12.5,             moving values stand at that second of the scenario
      "pids": "host",                whose PIDs are told in a PID namespace below the first;
                                     absent or null: as the driver of that version does (below)
      "gpu": {...},                  what all GPUs have
      "gpus": 8,                     or a list; an entry merges over "gpu", "count" repeats it
      "processes": {"train": {...}}, real processes that are started with the scenario
      "calls": [{...}]               calls that answer otherwise
    }

A GPU (absent or null: NVML_ERROR_NOT_SUPPORTED):

    name, uuid, cuda_uuid (where CUDA's differs: this stands for a MIG device), serial, vbios
                                     texts; "{i}" or "{i:02x}" in any text is the GPU's index
    index, minor                     the index, unless given
    pci             bus_id, device_id, subsystem_id
    memory, bar1    total, used, and reserved of memory       (bytes)
    utilization     gpu, memory, encoder, decoder, jpeg, ofa (%), period (us)
    temperature (C), threshold: shutdown, slowdown, memory_max, gpu_max; margin: left (T.Limit)
    power           usage, limit, enforced, default, min, max (mW); energy (mJ), also field 83
    clocks, max_clocks               graphics, sm, memory, video (MHz)
    pstate, fan (%), fans, persistence_mode, accounting_mode, compute_mode, display_active,
    display_mode, brand,
    architecture, clock_reasons, virtualization: NVML's numbers
    cores, compute_capability        16896, [9, 0]
    sm                               only where nvmlDeviceGetAttributes_v2 is supported
    ecc             mode, pending, corrected, uncorrected, aggregate_corrected,
                    aggregate_uncorrected, sram_threshold (0 or 1)
    retired         single, double: pages by cause; pending
    remapped        rows: correctable, uncorrectable; pending, failure
    repair          channel, tpc: whether one waits for a reset; unrepairable: memory
    fabric          state (3: completed), status: NVML's number; mask: of its health, NVML's number;
                    cluster: 1 where several machines share it
    xids            [[3, 79]]: XID 79 in second 3; [] for none yet
    mig             mode, pending, max, devices: those of the slots, null for an empty one
    links           NVLinks that are up, by what is at their other end: switch, or a GPU's index;
                    total: 18 where one is up; rest: the state of the others (0: down);
                    fields: 0 where nvmlDeviceGetFieldValues does not tell of links
    near            {"1": 20}: what nvmlDeviceGetTopologyCommonAncestor says of GPU 1
    pcie            generation, width, max_generation, max_width, tx, rx (KB/s), replays
    fields          {"82": 48}: nvmlDeviceGetFieldValues by id; with a scope "138:5" or "138:all"
    p2p, p2p_write  {"1": 3}, or 0 for all: what nvmlDeviceGetP2PStatus says of GPU 1; for writing
                    p2p_write, else p2p
    cpus, numa      "0-15,64-79": CPUs near it; their NUMA node; gpu_numa: that of its own memory
    compute, graphics, mps           lists of processes; null: the list is not supported
    samples                          null: nvmlDeviceGetProcessUtilization is not supported
    newcomers                        so many processes come between a size query and the list

A value may be a number or text, or

    {"wave": [low, high, period_s, phase]}    to and fro; the phase (0..1) differs by GPU if absent
    {"steps": [[0, 10], [5, 90]]}             90 from second 5 on
    {"each": [a, b, c]}                       a for GPU 0, b for GPU 1, ... and round again
    {"error": "NO_PERMISSION"}                the call fails

A MIG device: {"uuid", "gi", "ci", "profile": "2g.20gb", "sm", "gi_slices", "ci_slices", "memory",
...}: its name ends with its profile unless it has a "name"; any other key of a GPU may be given.

A process in a list: {"pid": 123 or the name of a process, "used": bytes or null (not available),
"gi", "ci" (MIG instances), "sm", "mem", "enc", "dec" (%, utilization samples; none given: no
sample), "sample_time": microseconds at which its samples stand still, "outside": true for one of
another PID namespace, "host_pid": its number in the first one (pid + 10 million), "inner": its
number in a namespace below that of the machine, and that namespace}. Programs that take memory by
libcuda.so.1 come into the lists by themselves (contexts.py); "lie": how the driver lies about them.

In the first PID namespace all are listed, by the pid that is written. In one below, as a container
has, by "pids" (open-gpu-kernel-modules by tag; in brackets the versions that do so). The pids are
those of the namespace in which the machine was made: to programs in one below that, all processes
are outside and have the pid as their host_pid, but for those that are given one.

    host      all, by host_pid [before 535.113.01]
    list      without those outside, with memory 0; samples by host_pid [before 565.57]
    memory    likewise, with their memory [before 570.86]
    samples   samples, too, by the pid; of those outside by host_pid
    empty     none, as some closed modules of 535; samples by host_pid

A real process: {"command": ["python", "train.py"], "count": 25, "env": {}, "manner": "burn" or
"stubborn" (ignores TERM), "on": [...]}. With a count its copies are name-0, name-1, ..., and {n} in
a word is that number. Words are bytes through os.fsencode: "\\udcff" is the byte FF;
{"repeat": "x", "times": 10000} is a long word. "on" puts it into lists: entries as above with
"gpu" (a number, a list, "all", or "spread": copy n on GPU n modulo the count) and
"list" ("compute" if absent). Processes are started once; later ones by Machine.spawn.

A call override: {"function": "nvmlDeviceGetPower*" or a list ("*" if absent), "gpu": 3 or "all"
(absent: machine calls too), "error": name or number, "ms": latency, "busy": true (it uses CPU
meanwhile), "hang": true (for ever) or "while" (as long as this override applies), "after", "until":
seconds since the start}. The first that applies is the one that counts. CUDA's functions
(cuInit, ...) have CUDA's error numbers; -11 there: the program dies of signal 11.
"""

import copy
import json
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

Scenario = dict[str, Any]

DIRECTORY = Path(__file__).parent / "scenarios"
LISTS = ("compute", "graphics", "mps")
MOVING = frozenset({"wave", "steps", "error", "each"})

_DEFAULT: Scenario = {
    "driver_version": "580.95.05",
    "nvml_version": "13.580.95.05",
    "cuda_version": 13000,
    "era": 580,
    "latency_ms": 0,
    "serialize": False,
    "frozen_at": None,
    "pids": None,
    "cuda_order": None,
    "gpus": 1,
    "processes": {},
    "calls": [],
}
_DEFAULT_GPU: Scenario = {"compute": [], "graphics": [], "mps": [], "samples": True}


class ScenarioError(ValueError):
    """A scenario that cannot be understood; one line that says which and why."""


def names() -> list[str]:
    """Names of the scenarios that come with the tests."""
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(source: str | Path | Scenario) -> Scenario:
    """A resolved scenario, from a name in `scenarios/`, the path of a file, or a dictionary.

    Resolved: bases merged, templates expanded, "gpus" a list with one dictionary per GPU.
    Raises ScenarioError.
    """
    written = _with_base(source if isinstance(source, dict) else _read(source))
    scenario = merge(_DEFAULT, written)
    scenario["gpus"] = _gpus(scenario)
    scenario.pop("gpu", None)
    scenario["processes"] = dict(_processes(scenario["processes"] or {}))
    for name, process in scenario["processes"].items():
        _place(scenario["gpus"], name, process)
    return scenario


def merge(under: Scenario, over: Scenario) -> Scenario:
    """A copy of `under` with `over` laid on it: objects merge, all else replaces."""
    result = copy.deepcopy(under)
    for key, value in over.items():
        if _is_group(value) and _is_group(result.get(key)):
            result[key] = merge(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _is_group(value: object) -> bool:
    return isinstance(value, dict) and not MOVING & value.keys()


def _read(source: str | Path) -> Scenario:
    path = Path(source)
    if not path.is_file():
        path = DIRECTORY / f"{source}.json"
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(names())
        raise ScenarioError(f"no scenario {source}: not a file, and not one of {known}") from None
    except ValueError as error:
        raise ScenarioError(f"{path} is not JSON: {error}") from None
    if not isinstance(written, dict):
        raise ScenarioError(f"{path} is not a JSON object")
    return written


def _with_base(written: Scenario) -> Scenario:
    if "base" not in written:
        return written
    return merge(
        _with_base(_read(written["base"])), {k: v for k, v in written.items() if k != "base"}
    )


def _gpus(scenario: Scenario) -> list[Scenario]:
    entries = scenario["gpus"]
    if isinstance(entries, int):
        entries = [{"count": entries}]
    shared = merge(_DEFAULT_GPU, scenario.get("gpu", {}))
    result: list[Scenario] = []
    for entry in entries:
        gpu = merge(shared, {key: value for key, value in entry.items() if key != "count"})
        for _ in range(entry.get("count", 1)):
            i = len(result)
            result.append({"index": i, "minor": i, **_expanded(gpu, i)})
    return result


def _expanded(value: Any, i: int) -> Any:
    """The value for GPU i: templates filled in, "each" chosen, waves out of step."""
    if isinstance(value, str):
        return re.sub(r"\{i(:[0-9a-zA-Z]+)?\}", lambda found: found[0].format(i=i), value)
    if isinstance(value, list):
        return [_expanded(item, i) for item in value]
    if not isinstance(value, dict):
        return value
    if "each" in value:
        return _expanded(value["each"][i % len(value["each"])], i)
    if "wave" in value and len(value["wave"]) == 3:
        return {"wave": [*value["wave"], round(i * 0.13 % 1, 2)]}
    return {key: _expanded(item, i) for key, item in value.items()}


def _processes(written: Scenario) -> Iterator[tuple[str, Scenario]]:
    for name, process in written.items():
        if process is None:
            continue
        count = process.get("count")
        for n in range(1 if count is None else count):
            words = [_word(word).replace("{n}", str(n)) for word in process["command"]]
            entry = {**process, "command": words, "number": n}
            entry.pop("count", None)
            yield (name if count is None else f"{name}-{n}"), entry


def _word(word: str | Scenario) -> str:
    return word if isinstance(word, str) else str(word["repeat"]) * int(word["times"])


def _place(gpus: list[Scenario], name: str, process: Scenario) -> None:
    """Put a process into the lists of the GPUs that it says it is on."""
    places = process.get("on", [])
    for place in places if isinstance(places, list) else [places]:
        entry = {key: value for key, value in place.items() if key not in ("gpu", "list")}
        for i in _indices(place.get("gpu", 0), process["number"], len(gpus)):
            listed = gpus[i][place.get("list", "compute")]
            if listed is not None:
                listed.append({"pid": name, **_expanded(entry, process["number"])})


def _indices(where: int | str | list[int], number: int, count: int) -> list[int]:
    if where == "spread":
        return [number % count]
    if where == "all":
        return list(range(count))
    return where if isinstance(where, list) else [int(where)]


def enlist(gpu: Scenario, kind: str, entry: Scenario) -> None:
    """Put a process into a list of a GPU, with the memory that it uses."""
    gpu[kind].append(entry)
    _use(gpu, _number(entry.get("used")))


def delist(gpu: Scenario, processes: Container[str | int]) -> None:
    """Take processes off the lists of a GPU, with the memory that they used.

    A process of several lists (C+G) has its memory once for each MIG instance.
    """
    held: dict[tuple[str | int, int | None], int] = {}
    for kind in LISTS:
        listed = gpu.get(kind) or []
        for entry in [entry for entry in listed if entry["pid"] in processes]:
            key = (entry["pid"], entry.get("gi"))
            held[key] = max(held.get(key, 0), _number(entry.get("used")))
            listed.remove(entry)
    _use(gpu, -sum(held.values()))


def _use(gpu: Scenario, change: int) -> None:
    memory = gpu.get("memory") or {}
    if isinstance(memory.get("used"), int):
        memory["used"] = max(0, memory["used"] + change)


def _number(value: object) -> int:
    """0 for what is not a plain number: moving memory is the scenario's own business."""
    return value if isinstance(value, int) else 0
