"""Compiles a resolved scenario into the flat text that scenario.c reads (its head has the format).

Any part of a GPU that is null is left out: the library answers NVML_ERROR_NOT_SUPPORTED.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pynvml

from tests.driver.scenario import LISTS, MOVING, Scenario, ScenarioError

NO_INSTANCE = 0xFFFFFFFF
FOREVER = 1e18
_ANYTHING, _ALL_GPUS = -2, -1
_MACHINE = ("driver_version", "nvml_version", "cuda_version")
_PIDS = ("host", "list", "memory", "samples", "empty")
_PIDS_SINCE = {"list": (535, 113, 1), "memory": (565, 57), "samples": (570, 86)}


def compiled(scenario: Scenario, pids: Mapping[str, int], start: float) -> bytes:
    """The flat text; start: CLOCK_MONOTONIC seconds from which the scenario counts.

    Raises ScenarioError for a process name without a pid, an unknown error, an unknown value.
    """
    return "".join(line + "\n" for line in _lines(scenario, pids, start)).encode("ascii")


def error_code(error: int | str) -> int:
    """The number of an NVML error: "GPU_IS_LOST", "NVML_ERROR_GPU_IS_LOST" and 15 are one."""
    if isinstance(error, int):
        return error
    code = getattr(pynvml, "NVML_ERROR_" + error.removeprefix("NVML_ERROR_"), None)
    if code is None:
        raise ScenarioError(f"no NVML error is called {error}")
    return int(code)


def _lines(scenario: Scenario, pids: Mapping[str, int], start: float) -> Iterator[str]:
    yield f"start {start:.6f}"
    if scenario["frozen_at"] is not None:
        yield f"frozen {scenario['frozen_at']}"
    yield f"latency {scenario['latency_ms']}"
    yield f"serialize {int(scenario['serialize'])}"
    for call in _calls(scenario):
        yield from _rules(call)
    for key in _MACHINE:
        if scenario[key] is not None:
            yield f"value {key} {_value(scenario[key])}"
    yield f"value pids n {_PIDS.index(_pids(scenario))}"
    yield f"value namespace n {os.stat('/proc/self/ns/pid').st_ino}"
    if scenario["cuda_order"] is not None:
        yield f"value cuda_order {_value(','.join(map(str, scenario['cuda_order'])))}"
    for gpu in scenario["gpus"]:
        yield "gpu"
        yield from _gpu(gpu, pids)


def _pids(scenario: Scenario) -> str:
    """Whose PIDs it tells, see scenario.py."""
    if scenario["pids"] is not None:
        if scenario["pids"] not in _PIDS:
            raise ScenarioError(f'"pids" is one of {", ".join(_PIDS)}, not {scenario["pids"]}')
        return str(scenario["pids"])
    numbers = [part for part in str(scenario["driver_version"]).split(".") if part.isdecimal()]
    version = tuple(map(int, numbers))
    return next((pids for pids in reversed(_PIDS_SINCE) if version >= _PIDS_SINCE[pids]), "host")


def _calls(scenario: Scenario) -> list[Scenario]:
    init = scenario.get("init")
    return ([{"function": "nvmlInit*", **init}] if init else []) + list(scenario["calls"])


def _rules(call: Scenario) -> Iterator[str]:
    gpu = call.get("gpu", _ANYTHING)
    error = error_code(call.get("error", 0))
    hang = {True: 1, "while": 2}.get(call.get("hang", False), 0)
    after, until = call.get("after", 0), call.get("until", FOREVER)
    functions = call.get("function", "*")
    for function in functions if isinstance(functions, list) else [functions]:
        number = _ALL_GPUS if gpu == "all" else gpu
        wait = f"{call.get('ms', -1)} {int(call.get('busy', False))} {hang}"
        yield f"rule {function} {number} {error} {wait} {after} {until}"


def _gpu(gpu: Scenario, pids: Mapping[str, int]) -> Iterator[str]:
    for key, value in _leaves({**gpu, "mig": _mig(gpu)}):
        yield f"value {key} {_value(value)}"
    for number, kind in enumerate(LISTS):
        if gpu.get(kind) is not None:
            yield f"value {kind} n 1"
            for process in gpu[kind]:
                yield from _process(number, process, pids)


def _mig(gpu: Scenario) -> Scenario | None:
    """Its MIG devices by slot in place of the list."""
    mig = dict(gpu.get("mig") or {})
    for slot, device in enumerate(mig.pop("devices", None) or []):
        if device is not None:
            name = f"{gpu.get('name')} MIG {device.get('profile')}"
            mig[str(slot)] = {"index": slot, "name": name, **device}
    return mig or None


def _leaves(group: Scenario, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in group.items():
        if value is None or (not prefix and key in LISTS):
            continue
        if key == "compute_capability" and isinstance(value, list):
            yield from _leaves(dict(zip(("major", "minor"), value, strict=True)), f"{key}.")
        elif isinstance(value, dict) and not MOVING & value.keys():
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _process(kind: int, process: Scenario, pids: Mapping[str, int]) -> Iterator[str]:
    pid = process["pid"]
    if isinstance(pid, str):
        if pid not in pids:
            raise ScenarioError(f"a list names the process {pid}, which is not in the scenario")
        pid = pids[pid]
    gi, ci = process.get("gi", NO_INSTANCE), process.get("ci", NO_INSTANCE)
    host, outside = process.get("host_pid", 0), int(process.get("outside", False))
    inner, namespace = process.get("inner", (0, 0))
    yield (
        f"process {kind} {pid} {gi} {ci} {process.get('sample_time', 0)} {host} {outside}"
        f" {inner} {namespace}"
    )
    for key in ("used", "sm", "mem", "enc", "dec"):
        if process.get(key) is not None:
            yield f"of {key} {_value(process[key])}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return "t " + "".join(f"%{byte:02x}" for byte in os.fsencode(value))
    if isinstance(value, (bool, int)):
        return f"n {int(value) % 2**64}"
    if isinstance(value, float):
        return f"n {int(value)}"
    if isinstance(value, dict) and "wave" in value:
        low, high, period, phase = (*value["wave"], 0)[:4]
        return f"w {low} {high} {period} {phase}"
    if isinstance(value, list):
        value = {"steps": value}
    if isinstance(value, dict) and "steps" in value:
        return "s " + " ".join(f"{second} {number}" for second, number in value["steps"])
    if isinstance(value, dict) and "error" in value:
        return f"e {error_code(value['error'])}"
    raise ScenarioError(f"not a value: {value!r}")
