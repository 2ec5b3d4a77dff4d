"""`gputop doctor` of several machines: what most have is said once, and who differs in what."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.doctor.check import compare, frame_checks
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame, Problem
from tests import builders


def machine(count: int = 2, driver: str = "580.1", **values: object) -> Frame:
    """A machine whose last GPU has these values."""
    usual = {"persistence_mode": True, "power_limit": 700.0}
    gpus = [builders.gpu(index, **usual) for index in range(count)]
    gpus[-1] = builders.gpu(count - 1, **{**usual, **values})
    return replace(builders.frame(gpus), driver_version=driver)


def different(**machines: Frame) -> dict[str, str]:
    """In what some of four machines differ, each with its hosts: two more are as usual."""
    checks = {
        host: [check for check in frame_checks([frame]) if check.code != "N/A"]
        for host, frame in {"a": machine(), "b": machine(), **machines}.items()
    }
    common, differences = compare(checks)
    assert Finding("ok", "persistence mode", "on") in common
    return {f"{check.code}: {check.text}": " ".join(hosts) for check, hosts in differences.items()}


def test_those_that_are_alike() -> None:
    assert different(c=machine(), d=machine()) == {}


def test_who_differs_and_in_what() -> None:
    assert different(c=machine(driver="570.1"), d=machine(power_limit=600.0)) == {
        "driver: 570.1": "c",
        "power limit (W): 700 (GPU 0), 600 (GPU 1)": "d",
    }
    assert different(c=machine(1), d=machine(1)) == {
        # Half of them are not most.
        "GPUs: 2 x H200": "a b",
        "GPUs: 1 x H200": "c d",
    }
    assert different(c=machine(persistence_mode=None)) == {
        "persistence mode: on (GPU 0), not known (GPU 1)": "c"
    }


def test_one_that_cannot_be_read_is_first_and_lacks_the_rest() -> None:
    problem = Problem(code="driver_not_loaded", text="not loaded", advice="load it")
    found = different(c=machine(driver="570.1"), d=replace(machine(), problem=problem))
    [(first, host), *_] = found.items()
    assert (first, host) == ("driver: not loaded", "d")
    [(lack, host)] = [each for each in found.items() if each[0].startswith("not there: ")]
    assert (lack.startswith("not there: GPUs, persistence mode, "), host) == (True, "d")


def test_one_of_two_toolkits_that_is_missing() -> None:
    old, new = Finding("ok", "toolkit", "11.8"), Finding("ok", "toolkit", "12.4")
    common, differences = compare({"a": [old, new], "b": [old, new], "c": [new]})
    assert common == [old, new]
    assert differences == {Finding("info", "not there", "toolkit 11.8"): ["c"]}
