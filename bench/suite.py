"""Which measurements are made on which machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.machines import SHAPES, SIZES, TIMED, Shape, machine
from bench.measures import Session, Values, medians
from bench.oneshot import cost
from bench.programs import Program
from tests.driver.machine import Machine

PARTS = ("screen", "calls", "once", "hung", "slow")
_SLOW_MS = 20
_MAIN = Shape(8, 200)
_GREAT = Shape(16, 1000)


@dataclass(frozen=True)
class Case:
    """One part on one machine."""

    part: str
    """screen: start, steady state, keys, end; calls: NVML calls; once: commands that print one
    snapshot; hung: one GPU does not answer; slow: every call of the driver takes 20 ms."""
    shape: Shape
    size: tuple[int, int] | None = SIZES[0]
    """Columns and rows of the terminal; None: no terminal."""

    def __str__(self) -> str:
        return f"{self.part} {self.shape}" + (" {}x{}".format(*self.size) if self.size else "")


@dataclass(frozen=True)
class Plan:
    """For how long (seconds), and how often, things are measured."""

    settled: float = 6.0
    """When a program that has just started counts as fully drawn."""
    steady: float = 30.0
    keys: int = 60
    """Keys pressed one at a time; 0: no keys at all."""
    scroll: float = 10.0
    timeout: float = 12.0
    """For the start of a program while the driver hangs, or is slow."""
    starts: int = 5
    looks: int = 9
    driver: list[dict[str, Any]] = field(default_factory=lambda: TIMED)
    """How long calls take, unless the part says so; empty: the driver answers at once."""


QUICK = Plan(settled=5.0, steady=10.0, keys=30, scroll=5.0, timeout=6.0, starts=3, looks=5)
_SHORT = Plan(settled=4.0, steady=8.0, keys=12, scroll=4.0, timeout=5.0, starts=1, looks=1)


def of_manual() -> list[tuple[Case, Plan]]:
    """Return what a run for the manual measures: three to four minutes with one peer."""
    usual = (
        Case("screen", _MAIN),
        Case("once", _MAIN, None),
        Case("hung", _MAIN),
        Case("slow", _MAIN),
    )
    many = Case("screen", Shape(8, 1000))
    return [*((case, _SHORT) for case in usual), (many, replace(_SHORT, keys=0))]


def cases(quick: bool, only: Sequence[str]) -> list[Case]:
    """Return the cases that have each of the words: a part, a machine, a size. `quick`: only on the
    usual machine, unless the words name another, and only in the larger size."""
    found = [
        *(Case("screen", shape, size) for shape in SHAPES for size in SIZES),
        *(Case("calls", shape) for shape in SHAPES),
        *(Case("once", shape, None) for shape in SHAPES),
        Case("hung", _MAIN),
        Case("slow", _MAIN),
    ]
    if quick:
        shapes = [shape for shape in SHAPES if str(shape) in only] or [_MAIN]
        quicker = [one for one in found if one.shape in shapes and one.size != SIZES[1]]
        found = [*quicker, *({Case("calls", _GREAT)} - set(quicker))]
    return [one for one in found if set(only) <= set(str(one).split())]


def run(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    """Measure a case, and return the values of each program by its name."""
    parts: dict[str, Callable[[Case, Sequence[Program], Plan], dict[str, Values]]] = {
        "screen": _screen,
        "calls": _calls,
        "once": _once,
        "hung": _hung,
        "slow": _slow,
    }
    return parts[case.part](case, programs, plan)


def _session(case: Case, program: Program, here: Machine, seconds: float) -> Session:
    assert program.screen
    assert case.size
    return Session(program.screen, case.shape, here, case.size, seconds)


def _with_screen(programs: Sequence[Program]) -> list[Program]:
    return [program for program in programs if program.screen]


def _screen(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    found: dict[str, Values] = {}
    with machine(case.shape, calls=plan.driver) as here:
        for program in _with_screen(programs):
            starts = []
            for _ in range(plan.starts - 1):
                with _session(case, program, here, plan.settled) as session:
                    starts.append({**session.start(), **session.quit()})
            with _session(case, program, here, plan.settled) as session:
                start = session.start()
                found[program.name] = session.steady(plan.steady)
                if plan.keys:
                    found[program.name] |= session.keys(plan.keys)
                    found[program.name] |= session.burst() | session.scroll(plan.scroll)
                starts.append({**start, **session.quit()})
            found[program.name] = {**medians(starts), **found[program.name]}
    return found


def _calls(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    """Count calls with a log, which costs more than the calls: nothing else is measured here."""
    found: dict[str, Values] = {}
    with machine(case.shape, log=True, calls=plan.driver) as here:
        for program in _with_screen(programs):
            with _session(case, program, here, plan.settled) as session:
                session.tty.listen(plan.settled)
                here.forget_calls()
                session.tty.listen(plan.steady)
                calls = here.calls()
                looks = calls.count(("nvmlDeviceGetUtilizationRates", 0))
                found[program.name] = {
                    "calls_per_s": len(calls) / plan.steady,
                    "looks_per_s": looks / plan.steady,
                }
    return found


def _once(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    """Measure commands in turns, so that other load on the machine affects them equally."""
    costs: dict[str, list[Values]] = {program.name: [] for program in programs}
    with machine(case.shape, calls=plan.driver) as here:
        for _ in range(plan.looks):
            for program in programs:
                told: Values = {}
                for what, command in program.looks.items():
                    look = cost(command, here.env) or {}
                    told[f"{what}_wall"] = look.get("wall_s")
                    told[f"{what}_cpu"] = look.get("cpu_s")
                costs[program.name].append(told)
    return {name: medians(told) for name, told in costs.items()}


def _hung(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    """Measure with a GPU 3 that has not answered since before the start."""
    calls = [{"function": "*", "gpu": 3, "hang": "while"}, *plan.driver]
    return _trouble(case, programs, plan, calls=calls)


def _slow(case: Case, programs: Sequence[Program], plan: Plan) -> dict[str, Values]:
    return _trouble(case, programs, plan, latency_ms=_SLOW_MS)


def _trouble(case: Case, programs: Sequence[Program], plan: Plan, **more: Any) -> dict[str, Values]:
    found: dict[str, Values] = {}
    with machine(case.shape, **more) as here:
        for program in _with_screen(programs):
            with _session(case, program, here, plan.timeout) as session:
                found[program.name] = {
                    **session.start(),
                    **session.steady(plan.steady / 2),
                    **session.keys(plan.keys // 2),
                    **session.quit(),
                }
    return found
