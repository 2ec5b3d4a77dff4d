"""A simulated GPU machine, live: `with Machine("h200x8") as machine`."""

import copy
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.driver import build, flat, forked
from tests.driver.children import Children
from tests.driver.contexts import Contexts
from tests.driver.scenario import Scenario, delist, enlist, load, merge

REPOSITORY = Path(__file__).parent.parent.parent


class Machine:
    """A scenario with its driver and its real processes; change it while programs run on it.

    Programs run on it when they have `env` as their environment. Every change is seen by the next
    driver call that any of them makes. A process that ends, killed by whomever, leaves its GPUs
    within a tenth of a second, and its memory is free again.
    """

    def __init__(
        self,
        scenario: str | Path | Scenario,
        directory: Path | None = None,
        log: bool = False,
        reap: bool = True,
    ) -> None:
        """scenario: as for `scenario.load`; directory: for the files of this machine.

        log: whether `calls` can tell which functions were called.
        reap: False leaves processes that end as zombies, and on their GPUs.
        Raises ScenarioError and, on entering, build.BuildError.
        """
        self.scenario = load(scenario)
        self._log = log
        self._reap = reap
        self._directory = directory
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._stack = ExitStack()
        self._written_ns = 0

    def __enter__(self) -> "Machine":
        with self._stack as stack:
            library = build.library(era=self.scenario["era"])
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="gputop-machine-"))
                stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._files = Path(tempfile.mkdtemp(dir=self._directory))
            self._children = stack.enter_context(Children(build.child()))
            self._children.start(self.scenario["processes"])
            self.start = time.monotonic()
            self._write()
            self.env = self._environment(library)
            self._contexts = Contexts(self.update, lambda: self.elapsed)
            stack.callback(self._contexts.close)
            self.env["GPUTOP_TEST_CUDA"] = str(self._contexts.path)
            self._follow(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the scenario's running processes by name."""
        return self._children.pids

    @property
    def elapsed(self) -> float:
        """Seconds since the start: what "after", "until" and moving values count in."""
        return time.monotonic() - self.start

    def gpu(self, index: int) -> Scenario:
        """The scenario's GPU, to read. To change it, `change` or `update`."""
        gpu: Scenario = self.scenario["gpus"][index]
        return gpu

    # Changing the machine

    def update(self, edit: Callable[[Scenario], object]) -> None:
        """Change the scenario in place, in `edit`; nothing changes when that fails.

        Raises ScenarioError for what the driver is not known.
        """
        with self._lock:
            before = self.scenario
            self.scenario = copy.deepcopy(before)
            try:
                edit(self.scenario)
                self._write()
            except BaseException:
                self.scenario = before
                raise

    def change(self, gpu: int, **values: Any) -> None:
        """Change values of a GPU: `machine.change(gpu=3, temperature=90, memory={"used": 0})`."""

        def edit(scenario: Scenario) -> None:
            scenario["gpus"][gpu] = merge(scenario["gpus"][gpu], values)

        self.update(edit)

    def freeze(self, second: float | None) -> None:
        """Let moving values, "after" and "until" stand at that second; None: run on."""
        self.update(lambda scenario: scenario.update(frozen_at=second))

    def override(self, function: str = "*", **call: Any) -> None:
        """Let calls answer otherwise from now on; the newest override counts.

        call: as in a scenario: gpu, error, ms, hang, after, until.
        """
        self.update(lambda scenario: scenario["calls"].insert(0, {"function": function, **call}))

    def fail(self, function: str, error: str | int, gpu: int | str | None = None) -> None:
        """Let calls fail from now on, on one GPU, "all", or (None) the machine's calls as well."""
        self.override(function, error=error, **_on(gpu))

    def hang(self, function: str = "*", gpu: int | str | None = None, wakes: bool = True) -> None:
        """Let calls hang from now on: until `heal` if they wake, else until the program dies."""
        self.override(function, hang="while" if wakes else True, **_on(gpu))

    def slow(self, function: str, ms: float, gpu: int | str | None = None) -> None:
        """Let calls take so many milliseconds from now on."""
        self.override(function, ms=ms, **_on(gpu))

    def heal(self) -> None:
        """Drop every override, of the scenario's file as well."""
        self.update(lambda scenario: (scenario["calls"].clear(), scenario.pop("init", None)))

    # Its processes

    def spawn(self, name: str, command: Sequence[str], gpu: int = 0, **entry: Any) -> int:
        """Start a real process that shows this command line, on a GPU; returns its pid.

        entry: env and manner of the process, list ("compute"), and what its list entry says.
        """
        process = {"command": list(command), **_taken(entry, "env", "manner")}
        kind = _taken(entry, "list").get("list", "compute")
        self._children.start({name: process})

        def edit(scenario: Scenario) -> None:
            scenario["processes"][name] = process
            enlist(scenario["gpus"][gpu], kind, {"pid": name, **entry})

        self.update(edit)
        return self.pids[name]

    def kill(self, *names: str) -> None:
        """SIGKILL processes and take them off their GPUs, with the memory that they held."""
        with self._lock:
            pids = self.pids
            self._children.kill(names)
            self.reset(*names, *(pids[name] for name in names))

    def reset(self, *processes: str | int) -> None:
        """Take processes, by name or pid, off their GPUs with their memory; they go on running."""

        def edit(scenario: Scenario) -> None:
            for gpu in scenario["gpus"]:
                delist(gpu, processes)

        self.update(edit)

    def _follow(self, stack: ExitStack) -> None:
        """Take processes that end off their GPUs, until the stack is closed."""
        if not self._reap:
            return

        def follow() -> None:
            while not self._over.wait(0.1):
                with self._lock:
                    ended = self._children.ended()
                    if ended:
                        self.reset(*ended)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._over.set)

    # Running programs on it

    def run(self, command: Sequence[str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a program on this machine to its end; output as text. gputop may be a copy of one
        that is imported: whoever tests how it starts has `popen`.

        Raises subprocess.TimeoutExpired after `timeout` seconds.
        """
        return forked.run(command, self.env, timeout)

    def popen(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
        """Start a program on this machine; it is killed when the machine ends."""
        options = {"stdout": subprocess.PIPE, "text": True, "env": self.env, **options}
        program = subprocess.Popen(command, **options)
        self._stack.callback(_end, program)
        return program

    def calls(self) -> list[tuple[str, int | None]]:
        """Functions called so far, each with the index of its GPU; empty without `log`."""
        path = self._files / "calls"
        text = path.read_text() if path.exists() else ""
        # A line that crosses a page of the file is seen by halves: without its end it is not whole.
        pairs = (line.split() for line in text[: text.rfind("\n") + 1].splitlines())
        return [(function, None if gpu == "-" else int(gpu)) for function, gpu in pairs]

    def forget_calls(self) -> None:
        """Begin the log anew."""
        (self._files / "calls").write_text("")

    def _environment(self, library: Path) -> dict[str, str]:
        env = dict(os.environ)
        search = [str(library.parent), *filter(None, [env.get("LD_LIBRARY_PATH")])]
        path = [str(REPOSITORY), *filter(None, [env.get("PYTHONPATH")])]
        env["LD_LIBRARY_PATH"] = os.pathsep.join(search)
        env["PYTHONPATH"] = os.pathsep.join(path)
        env["GPUTOP_TEST_DRIVER"] = str(self._files / "scenario")
        if self._log:
            env["GPUTOP_TEST_DRIVER_LOG"] = str(self._files / "calls")
        return env

    def _write(self) -> None:
        aside, path = self._files / "next", self._files / "scenario"
        aside.write_bytes(flat.compiled(self.scenario, self.pids, self.start))
        # Readers tell versions apart by their time, which must differ even within a clock tick.
        self._written_ns = max(time.time_ns(), self._written_ns + 1)
        os.utime(aside, ns=(self._written_ns, self._written_ns))
        aside.replace(path)


def _on(gpu: int | str | None) -> dict[str, int | str]:
    return {} if gpu is None else {"gpu": gpu}


def _taken(entry: dict[str, Any], *keys: str) -> Mapping[str, Any]:
    """Those keys, moved out of the entry."""
    return {key: entry.pop(key) for key in keys if key in entry}


def _end(program: "subprocess.Popen[str]") -> None:
    program.kill()
    program.communicate()
