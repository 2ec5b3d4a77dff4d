"""A simulated NVIDIA driver, for tests: a C library that unmodified programs load as NVML.

    scenario.py   what a machine is, as JSON: the format, its bases and templates
    scenarios/    machines by name; `names()` lists them
    machine.py    Machine: a scenario with its library and its real processes, live
    children.py   those processes
    contexts.py   programs that use the simulated libcuda, and how a driver may lie about them
    client.py     asking the driver through pynvml, in a process of its own
    flat.py       scenario -> the flat text that the library reads
    build.py      the compiler: library per driver era, child program
    __main__.py   `python -m tests.driver SCENARIO -- COMMAND...`, by hand
    *.c, *.h      the library: abi.h (layouts, eras), machine.h, scenario.c (reads the flat text),
                  call.c (log, delays, hangs, errors), system.c, device.c, board.c, health.c,
                  events.c, links.c, topology.c, gpm.c, process.c;
                  cuda.c, context.c (libcuda.so.1); child.c
    nvidia_smi.py, nvidia_smi_xml.py    nvidia-smi on that driver

A test:

    with Machine("h200x8", tmp_path, log=True) as machine:
        done = machine.run([sys.executable, "-m", "gputop", "--once"])
        assert str(machine.pids["train"]) in done.stdout

    machine.change(gpu=3, temperature=90)            values, seen by the very next call
    machine.fail("*", "GPU_IS_LOST", gpu=3)          errors; then machine.heal()
    machine.hang(gpu=3)                              other GPUs go on; heal() wakes it
    machine.slow("nvmlDeviceGet*", ms=500)
    machine.freeze(12)                               the scenario's clock; freeze(None) starts it
    machine.spawn("late", ["python", "late.py"], gpu=1, used=2**30)
    machine.kill("late")                             the process and its entry
    machine.update(lambda scenario: ...)             anything
    machine.env, machine.popen(...), machine.pids, machine.scenario, machine.calls()
"""

from tests.driver.build import BuildError
from tests.driver.machine import Machine
from tests.driver.scenario import Scenario, ScenarioError, load, names

__all__ = ["BuildError", "Machine", "Scenario", "ScenarioError", "load", "names"]
