"""`gputop map`: options, and what they do. Exit status: 0 visible, 1 nothing visible, 2 usage."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import closing
from pathlib import Path

from gputop.agent.probe import Prober
from gputop.commands import HELP
from gputop.errors import DriverError, UsageError
from gputop.export.mapping import log_json, log_text, mapping_json, mapping_text
from gputop.model.advice import Advice, advise
from gputop.model.environ import NAME, ORDER, Environ
from gputop.model.frame import Frame
from gputop.model.frameworks import FRAMEWORKS
from gputop.model.inventory import Inventory, frame_inventory, read_inventory
from gputop.model.logical_names import LogicalNames
from gputop.model.mapping import Mapping
from gputop.model.probe import compare
from gputop.model.process_advice import environ_advice
from gputop.model.selections import read_layers
from gputop.model.shell_line import parse_shell
from gputop.model.tflog import explain, read_tf_log
from gputop.model.visibility import resolve
from gputop.sources.local import LocalSource


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "map",
        help=HELP["map"],
        description="Tell what a CUDA_VISIBLE_DEVICES means here or on another machine.",
        epilog="exit status: 0 something is visible, 1 nothing is, 2 usage",
    )
    # argparse takes `-1,0` for an option; its own exception is for `-1` alone.
    parser._negative_number_matcher = re.compile(r"-[0-9]")
    add = parser.add_argument
    add("value", nargs="?", metavar="VALUE", help="a value or a shell line (default: your own)")
    add("--pid", type=int, metavar="PID", help="what a running process was started with")
    add("--unset", action="store_true", help="as if CUDA_VISIBLE_DEVICES were not set")
    add("--order", metavar="ORDER", help="CUDA_DEVICE_ORDER")
    add(
        "--inventory", metavar="FILE", help="another machine: its `gputop --json`, or a description"
    )
    add("--driver", metavar="VERSION", help="its driver version")
    add("--framework", choices=[one.id for one in FRAMEWORKS], help="whose names to show")
    add("--tf-visible-devices", metavar="LIST", help="TensorFlow's visible_device_list")
    add("--tf-logical", metavar="GPU:MIB,...", action="append", default=[],
        help="TensorFlow's logical devices on one visible GPU: 0:2048,2048")  # fmt: skip
    add("--memory-fraction", metavar="F", type=float, help="what this share of each GPU is")
    add("--tf-log", metavar="FILE", help="explain a TensorFlow log (-: standard input)")
    add("--verify", action="store_true", help="ask the CUDA driver of this machine as well")
    add("--json", dest="map_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises UsageError and DriverError."""
    layers = read_layers(options.tf_visible_devices, options.tf_logical, options.memory_fraction)
    if options.verify and options.inventory is not None:
        raise UsageError("--verify asks this machine's driver: leave --inventory out")
    frame = _frame() if options.inventory is None else None
    inventory = _inventory(options) if frame is None else frame_inventory(frame)
    if options.tf_log is not None:
        return _explain_log(options, inventory)
    answer, said = _answer(options, inventory, frame)
    advice = (*said, *advise(answer, inventory.usage))
    verdict = None
    if options.verify:
        verdict = compare(
            answer, Prober().ask(answer.value, answer.order, inventory), inventory.devices
        )
    form = mapping_json if options.map_json else mapping_text
    _write(form(answer, inventory, advice, layers, options.framework, verdict))
    failed = answer.visible is not None and layers.selection(len(answer.visible)).ordinals is None
    return 1 if answer.count == 0 or failed else 0


def _answer(
    options: argparse.Namespace, inventory: Inventory, frame: Frame | None
) -> tuple[Mapping, tuple[Advice, ...]]:
    """The mapping that is asked for, and what is to be said about its variables."""
    driver_version = options.driver or inventory.driver_version
    if options.pid is not None:
        return _of_process(options, frame)
    value, order, said = _variables(options)
    answer = resolve(
        value,
        inventory.devices,
        order=order,
        cuda_order=inventory.cuda_order,
        driver_version=driver_version,
    )
    return answer, said


def _of_process(
    options: argparse.Namespace, frame: Frame | None
) -> tuple[Mapping, tuple[Advice, ...]]:
    from gputop.agent.surroundings import look_closely

    pid = options.pid
    if options.value is not None or options.unset or options.order or frame is None:
        raise UsageError("--pid asks about that process's own variables on this machine: give no "
                         "VALUE, --unset, --order or --inventory with it")  # fmt: skip
    if options.verify:
        raise UsageError("--verify asks for this shell's GPUs, which need not be those of --pid")
    around = look_closely(pid)
    if around.environ.missing == "gone":
        raise UsageError(f"there is no process {pid} here")
    found = LogicalNames(frame).of(pid, around)
    return found.mapping, found.advice


def _variables(options: argparse.Namespace) -> tuple[str | None, str | None, tuple[Advice, ...]]:
    """Give value, order, and what is to be said about where they come from."""
    # On another machine our own order means nothing; here a program would inherit it.
    ours = options.inventory is None or (options.value is None and not options.unset)
    order = os.environ.get(ORDER) if ours and options.order is None else options.order
    if options.unset:
        if options.value is not None:
            raise UsageError("--unset and a VALUE exclude each other: leave one of them out")
        return None, order, ()
    if options.value is None:
        environ = Environ(dict(os.environ))
        said = environ_advice(environ, in_container=True)
        return environ.variables.get(NAME), order, said
    line = parse_shell(options.value)
    if line is None:
        return options.value, order, ()
    return line.value, line.order if options.order is None and line.order else order, line.advice


def _inventory(options: argparse.Namespace) -> Inventory:
    if options.driver is not None and not re.match("[0-9]", options.driver):
        raise UsageError(f"--driver {options.driver!r} is no version: write it as 580.65.06")
    return read_inventory(_read(options.inventory), options.inventory)


def _frame() -> Frame:
    with closing(LocalSource(None)) as source:
        for frame in source.frames():
            if frame.problem is not None:
                raise DriverError(str(frame.problem))
            return frame
    raise DriverError("the agent sent nothing: try again")


def _explain_log(options: argparse.Namespace, inventory: Inventory) -> int:
    log = read_tf_log(_read(options.tf_log).decode("utf-8", "replace"))
    advice = explain(log, inventory.devices)
    _write(log_json(log, inventory.devices, advice) if options.map_json else log_text(log, advice))
    return 0 if log.devices else 1


def _read(path: str) -> bytes:
    """Read a file, `-` for standard input; UsageError with its name and the reason."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from None


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.rstrip("\n").encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()
