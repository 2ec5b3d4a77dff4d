"""The sections of a board: what is asked how often, counters, and calls without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml
import pytest

from gputop.agent.gpu import validate
from gputop.agent.gpu.board import PowerSection, ThrottleSection
from gputop.agent.gpu.health import HealthSection
from gputop.agent.gpu.sections import (
    QUICK,
    SELDOM,
    Ask,
    CounterRate,
    CounterTotal,
    Fields,
    Section,
    Sections,
)
from gputop.agent.gpu.traffic import PcieSection
from gputop.model.health.findings import findings
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.frame import Frame
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.patience import until

BOARD: Json = {
    "gpu": {
        "name": "NVIDIA H200",
        "uuid": "GPU-{i}",
        "serial": "165302400000{i}",
        "vbios": "96.00.C8.00.01",
        "architecture": 9,
        "virtualization": 0,
        "compute_capability": [9, 0],
        "cores": 16896,
        "sm": 132,
        "bar1": {"total": 2**38, "used": 2**20},
        "utilization": {"encoder": 1, "decoder": 2, "jpeg": 3, "ofa": 4, "period": 1},
        "clocks": {"graphics": 1980, "video": 1545},
        "max_clocks": {"graphics": 1990, "memory": 3201, "video": 1555},
        "power": {"default": 700000, "min": 200000, "max": 700000},
        "energy": 10**9,
        "temperature": 50,
        "threshold": {"shutdown": 92, "slowdown": 89},
        "margin": 37,
        "clock_reasons": 0x24,
        "pcie": {
            "generation": 4, "width": 8, "max_generation": 5, "max_width": 16, "replays": 1,
            "tx": 10, "rx": 20,
        },
        "fields": {
            "74": 5, "76": 0, "82": 61, "185": 301000, "186": 302000, "197": 2**33, "198": 2**34,
            "269": 0, "270": 0, "271": 0,
        },
    },
    "gpus": 2,
}  # fmt: skip
"""GPUs that answer every call that is made for these sections."""
SECTIONS = ["identity", "bar1", "engines", "clocks", "power_more", "thermal", "throttle", "pcie"]

OPTIONAL: dict[str, str] = {
    "nvmlDeviceGetSerial": "identity.serial",
    "nvmlDeviceGetVbiosVersion": "identity.vbios",
    "nvmlDeviceGetArchitecture": "identity.architecture",
    "nvmlDeviceGetCudaComputeCapability": "identity.compute_capability",
    "nvmlDeviceGetVirtualizationMode": "identity.virtualization",
    "nvmlDeviceGetBAR1MemoryInfo": "bar1",
    "nvmlDeviceGetEncoderUtilization": "engines.encoder",
    "nvmlDeviceGetDecoderUtilization": "engines.decoder",
    "nvmlDeviceGetJpgUtilization": "engines.jpeg",
    "nvmlDeviceGetOfaUtilization": "engines.ofa",
    "nvmlDeviceGetClockInfo": "clocks.graphics clocks.video",
    "nvmlDeviceGetMaxClockInfo": "clocks.graphics_max clocks.video_max clocks.memory_max",
    "nvmlDeviceGetPowerManagementDefaultLimit": "power_more.limit_default",
    "nvmlDeviceGetPowerManagementLimitConstraints": "power_more.limit_min power_more.limit_max",
    "nvmlDeviceGetTotalEnergyConsumption": "",
    "nvmlDeviceGetTemperatureThreshold": "thermal.slowdown thermal.shutdown",
    "nvmlDeviceGetCurrentClocks*Reasons": "throttle",
    "nvmlDeviceGetCurrentClocksEventReasons": "",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie.generation",
    "nvmlDeviceGetMaxPcieLinkGeneration": "pcie.generation_max",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie.width",
    "nvmlDeviceGetMaxPcieLinkWidth": "pcie.width_max",
    "nvmlDeviceGetPcieReplayCounter": "pcie.replays",
    "nvmlDeviceGetFieldValues": "power_more.average power_more.instant thermal.memory",
}
"""Function pattern -> what becomes null when it has no answer."""


def sections(gpu: Json) -> Json:
    return {
        f"{name}.{field}" if field else name: value
        for name in SECTIONS
        for field, value in ({"": None} if gpu[name] is None else gpu[name]).items()
    }


def without(function: str, whole: Json) -> Json:
    lost = OPTIONAL[function].split()
    kept = {name: value for name, value in whole.items() if name.partition(".")[0] not in lost}
    return {**kept, **dict.fromkeys(lost)}


@pytest.mark.system
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "UNKNOWN", "INVALID_ARGUMENT", "NO_PERMISSION"])
def test_a_call_without_an_answer_costs_only_its_own_values(
    error: str, machine: MachineFactory
) -> None:
    """As many GPUs as calls: on each another one fails."""
    here = machine({**BOARD, "gpus": len(OPTIONAL) + 1})
    for index, function in enumerate(OPTIONAL, start=1):
        here.fail(function, error, gpu=index)
    with Agent(here) as agent:
        for frame in (agent.line(), agent.refresh()):
            whole, *broken = map(sections, frame["gpus"])
            missing = {name for name, value in whole.items() if value is None}
            assert missing == {"pcie.tx", "pcie.rx"}
            for index, (function, told) in enumerate(zip(OPTIONAL, broken, strict=True)):
                serial = {"identity.serial": f"165302400000{index + 1}"}
                assert told == without(function, {**whole, **serial}), function


@pytest.mark.system
def test_where_there_is_no_margin_the_fixed_threshold_tells_it(machine: MachineFactory) -> None:
    here = machine({**BOARD, "gpus": [{}, {"margin": None}, {"margin": -3}, {"temperature": None}]})
    here.fail("nvmlDeviceGetMarginTemperature", "NOT_SUPPORTED", gpu=3)
    with Agent(here) as agent:
        margins = [gpu["thermal"]["margin"] for gpu in agent.line()["gpus"]]
        assert margins == [37.0, 39.0, -3.0, None]
        here.change(gpu=1, temperature=60)
        assert agent.refresh()["gpus"][1]["thermal"]["margin"] == 29.0


@pytest.mark.system
def test_a_link_that_wakes_with_the_gpu_is_read_at_once(machine: MachineFactory) -> None:
    rest, work = ({"max_generation": 5, "generation": generation} for generation in (1, 5))
    here = machine({**BOARD, "gpu": {"utilization": {"gpu": 0, "memory": 0}, "pcie": rest}})
    with Agent(here) as agent:
        assert agent.line()["gpus"][0]["pcie"]["generation"] == 1
        here.change(gpu=0, utilization={"gpu": 90}, pcie=work)
        assert agent.refresh()["gpus"][0]["pcie"]["generation"] == 5


ONCE = {
    "nvmlDeviceGetSerial": 1,
    "nvmlDeviceGetVbiosVersion": 1,
    "nvmlDeviceGetArchitecture": 1,
    "nvmlDeviceGetCudaComputeCapability": 1,
    "nvmlDeviceGetVirtualizationMode": 1,
    "nvmlDeviceGetMaxClockInfo": 4,
    "nvmlDeviceGetTemperatureThreshold": 2,
    "nvmlDeviceGetMaxPcieLinkGeneration": 1,
    "nvmlDeviceGetMaxPcieLinkWidth": 1,
    "nvmlDeviceGetBAR1MemoryInfo": 1,
    "nvmlDeviceGetPowerManagementDefaultLimit": 1,
    "nvmlDeviceGetPowerManagementLimitConstraints": 1,
    "nvmlDeviceGetEncoderUtilization": 1,
    "nvmlDeviceGetMarginTemperature": 1,
    "nvmlDeviceGetPcieReplayCounter": 1,
}
"""What is asked how often until the second look at what moves; the last six again later."""


@pytest.mark.system
def test_each_has_its_pace_and_the_fields_are_one_call(machine: MachineFactory) -> None:
    here = machine({**BOARD, "gpus": [{}, {"fields": None, "energy": None}]}, log=True)

    def looks(gpu: int) -> int:
        return Counter(here.calls())["nvmlDeviceGetCurrentClocksEventReasons", gpu]

    with Agent(here) as agent:
        agent.line()
        first = Counter(here.calls())
        until(lambda: agent.refresh() and looks(0) == looks(1) == 2)
        calls = Counter(here.calls())
    for function, times in ONCE.items():
        assert (first[function, 0], calls[function, 0]) == (times, times), function
    assert calls["nvmlDeviceGetFieldValues", 0] == 2
    assert calls["nvmlDeviceGetFieldValues", 1] == 1  # none of them is supported
    assert calls["nvmlDeviceGetTotalEnergyConsumption", 0] == 0  # it is one of the fields
    assert calls["nvmlDeviceGetTotalEnergyConsumption", 1] == 1
    assert calls["nvmlDeviceGetCurrentClocksThrottleReasons", 0] == 0
    assert calls["nvmlDeviceGetPcieThroughput", 0] == 0


@pytest.mark.system
def test_rates_and_shares_of_a_running_machine(machine: MachineFactory) -> None:
    """The scenario's counters rise by 1.205 and 2.4 GB/s, and by a quarter of the time. How long
    clocks were held back is asked for every ten seconds, and at once after an XID."""
    here = machine("h200x8")
    with Agent(here) as agent:
        agent.line()
        until(lambda: agent.refresh()["gpus"][0]["pcie"]["tx"] is not None)
        assert agent.refresh()["gpus"][0]["throttle"]["shares"] == {}
        here.change(0, xids=[[here.elapsed, 13]])
        gpu = until(lambda: (gpu := agent.refresh()["gpus"][0])["throttle"]["shares"] and gpu)
    assert gpu["pcie"]["tx"] == pytest.approx(1.205e9, rel=0.05)
    assert gpu["pcie"]["rx"] == pytest.approx(2.4e9, rel=0.05)
    assert gpu["throttle"]["shares"]["sw_power_cap"] == pytest.approx(0.25, abs=0.02)
    assert gpu["throttle"]["shares"]["hw_thermal_slowdown"] == 0.0


@pytest.mark.system
def test_without_byte_counters_the_stalling_call_never_delays_a_tick(
    machine: MachineFactory,
) -> None:
    here = machine(
        {**BOARD, "gpu": {**BOARD["gpu"], "fields": {"197": 2**33}}, "gpus": 1}, log=True
    )
    here.hang("nvmlDeviceGetPcieThroughput")
    with Agent(here) as agent:
        agent.line()
        until(lambda: agent.refresh() and ("nvmlDeviceGetPcieThroughput", 0) in here.calls())
        gpu = agent.refresh(within=0.5)["gpus"][0]
        assert (gpu["stale_for"], gpu["pcie"]["tx"]) == (None, None)
        here.heal()
        until(lambda: agent.refresh()["gpus"][0]["pcie"]["tx"] is not None)
        pcie = agent.refresh()["gpus"][0]["pcie"]
    assert (pcie["tx"], pcie["rx"]) == (10240.0, 20480.0)


def answers(**told: Any) -> Callable[..., Any]:
    """As a GPU that answers these functions alone."""
    return lambda call, *arguments: told.get(call.__name__)


def test_gained_counts_on_after_a_reset() -> None:
    energy = CounterTotal()
    counts = [1000, 1500, 1500, None, 2000, 100, 350]
    assert [energy.add(count) for count in counts] == [0, 500, 500, None, 1000, 1000, 1250]


def test_a_rate_needs_two_looks_and_a_counter_that_does_not_fall() -> None:
    rate = CounterRate()
    looks = [(100, 1.0), (300, 3.0), (50, 4.0), (60, 5.0), (None, 6.0), (80, 7.0), (80, 8.0)]
    told = [rate.per_second(count, now) for count, now in looks]
    assert told == [None, 100.0, None, 10.0, None, None, 0.0]


def test_energy_is_in_joules_since_the_first_look() -> None:
    power = PowerSection()
    told = []
    for look, millijoules in enumerate((981273645, 981274645, 250, 2250, 2**64 - 1)):
        ask = answers(nvmlDeviceGetTotalEnergyConsumption=millijoules)
        section = power.read(ask, {}, look * SELDOM)
        told.append(section and section.energy)
    assert told == [0.0, 1.0, 1.0, 3.0, None]


def test_shares_are_of_all_the_time_since_the_first_look() -> None:
    throttle = ThrottleSection()
    ask = answers(nvmlDeviceGetCurrentClocksThrottleReasons=0x49)
    told: list[dict[str, float]] = []
    reasons: tuple[str, ...] = ()
    for now, nanoseconds in ((10.0, 7e9), (12.0, 8e9), (14.0, 0), (18.0, 1e9), (19.0, 99e9)):
        section = throttle.read(ask, {pynvml.NVML_FI_DEV_PERF_POLICY_POWER: nanoseconds}, now)
        assert section == throttle.read(ask, {}, now)  # those that were not asked for stay
        assert section
        told.append(section.shares)
        reasons = section.reasons
    assert reasons == ("hw_thermal_slowdown", "hw_slowdown")
    assert told == [{}, *({"sw_power_cap": share} for share in (0.5, 0.25, 0.25, 1.0))]


def test_reasons_come_as_the_table_has_them() -> None:
    section = ThrottleSection().read(
        answers(nvmlDeviceGetCurrentClocksEventReasons=2**64 - 1), {}, 0.0
    )
    assert section
    assert section.reasons == tuple(THROTTLE_REASONS)
    words = [reason.word for reason in THROTTLE_REASONS.values()]
    assert len(set(words)) == len(words)


def test_limits_of_the_board_and_for_reliability_have_bits_of_their_own() -> None:
    """Of R615: nvmlClocksThrottleReasonBoardLimit and nvmlClocksThrottleReasonReliability."""
    for bits, reasons in ((0x200, ("board_limit",)), (0x400, ("reliability",)), (0x900, ())):
        section = ThrottleSection().read(
            answers(nvmlDeviceGetCurrentClocksEventReasons=bits), {}, 0.0
        )
        assert section
        assert section.reasons == reasons


def test_a_reason_lasts_from_the_third_look_in_a_row_on() -> None:
    throttle = ThrottleSection()
    told = []
    for now, bits in enumerate((8, 8, 0, 8, 8, 8, 0x48, 0x40, 0x40, 8)):
        ask = answers(nvmlDeviceGetCurrentClocksEventReasons=bits)
        section = throttle.read(ask, {}, 2.0 * now)
        told.append(section and section.lasting)
    hot, slow = "hw_thermal_slowdown", "hw_slowdown"
    assert told == [(), (), (), (), (), (slow,), (slow,), (), (hot,), ()]


@pytest.mark.system
@pytest.mark.long
def test_a_slowdown_alone_is_an_alarm_when_it_lasts(machine: MachineFactory) -> None:
    """Asked again and again by a real agent; while clocks change it is there for a moment."""
    here = machine({"base": "h200x8", "gpus": 1, "processes": None, "gpu": {"clock_reasons": 8}})

    def level(frame: Json) -> list[str]:
        whole = msgspec.convert(frame, Frame)
        return [gpu.level for gpu in findings(whole, whole.gpus[0]) if gpu.code == "SLOWDOWN"]

    with Agent(here, interval=1.0) as agent:
        until(lambda: level(agent.refresh()) == ["warning"])
        until(lambda: level(agent.refresh()) == ["error"], within=12)
        here.change(0, clock_reasons=0)
        until(lambda: level(agent.refresh()) == [], within=6)
        here.change(0, clock_reasons=8)
        until(lambda: level(agent.refresh()) == ["warning"], within=6)


@pytest.mark.parametrize("counts", [(2**32 - 1, 2**40), (2**40, None), (2**64 - 1, 2**40)])
def test_narrow_counters_are_no_rates(counts: tuple[int, int | None]) -> None:
    """One of 32 bits would wrap five times a second at 20 GB/s."""
    pcie = PcieSection()
    pcie.read(answers(), {197: 2**33, 198: 2**33}, 0.0)
    assert pcie.read(answers(), dict(zip((197, 198), counts, strict=True)), 2.0) is None


GARBAGE: list[tuple[float | None, float | None]] = [
    (37, 37.0),
    (-1, -1.0),
    (-51, None),
    (251, None),
    (None, None),
]


@pytest.mark.parametrize(("degrees", "shown"), GARBAGE)
def test_a_margin_may_be_below_zero(degrees: int | None, shown: float | None) -> None:
    assert validate.margin(degrees) == shown


def test_a_refresh_during_a_reading_asks_for_another() -> None:
    readings = []

    class Interrupted(Section):
        name, kind, every = "interrupted", dict, 10.0

        def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
            readings.append(now)
            if len(readings) == 1:  # an event comes
                subjects.refresh()
            return {"now": now}

    subjects = Sections([Interrupted()])
    for now in (100.0, 101.0, 102.0, 111.0):
        subjects.read(lambda call, *arguments: None, now)
    assert readings == [100.0, 101.0, 111.0]


def test_a_refresh_makes_slow_values_due() -> None:
    health, told = HealthSection(), {"nvmlDeviceGetRepairStatus": [0, 0]}
    subjects = Sections([health])

    def pending(now: float) -> Any:
        section: Any = subjects.read(answers(**told), now)["health"]
        return section.repair_pending

    assert pending(100.0) is False
    told["nvmlDeviceGetRepairStatus"] = [1, 0]
    assert pending(106.0) is False
    subjects.refresh()
    assert pending(107.0) is True


def test_energy_comes_from_the_field_if_there_is_one() -> None:
    power, field = PowerSection(), pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
    ask = answers(nvmlDeviceGetTotalEnergyConsumption=5000)
    counts, times = (2000, 3000, 4000, None), (0.0, SELDOM, SELDOM + QUICK, 2 * SELDOM)
    looks = zip(counts, times, strict=True)
    told = [power.read(ask, {field: count}, now).energy for count, now in looks]
    assert told == [0.0, 1.0, 1.0, 3.0]
