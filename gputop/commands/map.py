"""`gputop map`: options, and what they do. Exit status: 0 visible, 1 nothing is, 2 usage."""

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
from gputop.model.probe import Verdict, compare, cuda_order
from gputop.model.process_advice import environ_advice
from gputop.model.process_mapping import ProcessMapping
from gputop.model.selections import read_layers, selected
from gputop.model.shell_line import parse_shell
from gputop.model.tflog import explain, read_tf_log
from gputop.model.visibility import resolve
from gputop.sources.local import LocalSource

_EXAMPLES = """\
examples:
  gputop map 1,2,-1                        which GPU is cuda:0, what was dropped, why
  gputop map 'CUDA_VISIBLE_DEVICES=0;1 python x.py'    what is wrong with a line
  gputop map 2,1 --order PCI_BUS_ID --framework jax
  gputop map 1,2 --device cuda:2           is there such a GPU, and what is its name
  gputop map 1,2 --tf-visible-devices 1 --tf-logical 1:2048,2048
  gputop map --pid 21195                   what a running process was started with
  gputop map --verify                      your own variables, asked of the driver
  gputop map --inventory node-07.json 0,1  another machine, from its `gputop --json`
  python train.py 2>&1 | gputop map --tf-log -    which GPU its `device: 0` is

exit status: 0 something is visible, 1 nothing is, or the program's selection
raises an error, 2 usage, 3 the NVIDIA driver cannot be read
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "map",
        help=HELP["map"],
        description="Tell what a CUDA_VISIBLE_DEVICES means here or on another machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # argparse takes `-1,0` for an option; its own exception is for `-1` alone.
    parser._negative_number_matcher = re.compile(r"-[0-9]")
    add = parser.add_argument
    add("value", nargs="?", metavar="VALUE",
        help="a value, or a line of shell or Python (default: your own variables)")  # fmt: skip
    add("--pid", type=int, metavar="PID", help="what a running process was started with")
    add("--unset", action="store_true", help="as if CUDA_VISIBLE_DEVICES were not set")
    add("--order", metavar="ORDER", help="CUDA_DEVICE_ORDER")
    add("--verify", action="store_true", help="ask the CUDA driver of this machine as well")
    add("--json", dest="map_json", action="store_true", help="print a line of JSON")
    add("--tf-log", metavar="FILE", help="explain a TensorFlow log (-: standard input)")
    add = parser.add_argument_group("another machine").add_argument
    add("--inventory", metavar="FILE", help="its `gputop --json`, or a description")
    add("--driver", metavar="VERSION", help="its driver version")
    _add_program(parser.add_argument_group("what the program does"))


def _add_program(group: argparse._ArgumentGroup) -> None:
    add, ids = group.add_argument, [one.id for one in FRAMEWORKS]
    add("--framework", metavar="NAME", choices=ids, help=f"names GPUs as one of {', '.join(ids)}")
    add("--device", metavar="NAME", help="asks for a GPU: cuda:2, /device:GPU:2, CUDA2")
    add("--local-rank", metavar="R", type=int, help="is torchrun's worker with LOCAL_RANK=R")
    add("--tf-visible-devices", metavar="LIST",
        help="sets TensorFlow's visible_device_list; in brackets set_visible_devices")  # fmt: skip
    add("--tf-logical", metavar="GPU:MIB,...", action="append", default=[],
        help="makes TensorFlow's logical devices on one visible GPU: 0:2048,2048")  # fmt: skip
    add("--jax-visible-devices", metavar="LIST", help="sets JAX's flag jax_cuda_visible_devices")
    add("--memory-fraction", metavar="F", type=float,
        help="takes this share (0 to 1) of each GPU's memory (JAX: 0.75)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises UsageError and DriverError."""
    layers = read_layers(
        options.tf_visible_devices,
        options.tf_logical,
        options.memory_fraction,
        jax=options.framework == "jax",
        jax_visible=options.jax_visible_devices,
        local_rank=options.local_rank,
        device=options.device,
    )
    if options.verify and options.inventory is not None:
        raise UsageError("--verify asks this machine's driver: leave --inventory out")
    frame = _frame() if options.inventory is None else None
    inventory = _inventory(options) if frame is None else frame_inventory(frame)
    if options.tf_log is not None:
        return _explain_log(options, inventory)
    prober = Prober()
    process = None if options.pid is None else _of_process(options, frame)
    if process is None:
        answer, said = _answer(options, inventory, prober)
    else:
        answer, said = process.mapping, process.advice
    advice = (*said, *advise(answer, inventory.usage))
    verdict = _verdict(answer, inventory, prober) if options.verify else None
    form = mapping_json if options.map_json else mapping_text
    _write(form(answer, inventory, advice, layers, options.framework, verdict, process))
    raises = any(layer.selection.raises for layer in selected(answer, layers))
    return 1 if answer.count == 0 or raises else 0


def _answer(
    options: argparse.Namespace, inventory: Inventory, prober: Prober
) -> tuple[Mapping, tuple[Advice, ...]]:
    """The mapping that is asked for, and what is to be said about its variables."""
    driver_version = options.driver or inventory.driver_version
    value, order, said = _variables(options)
    seen = inventory.cuda_order
    if options.verify:  # what integers count is exact where the driver itself gives the order
        seen = cuda_order(prober.ask(None, order, inventory), inventory.devices)
    answer = resolve(
        value, inventory.devices, order=order, cuda_order=seen, driver_version=driver_version
    )
    return answer, said


def _verdict(answer: Mapping, inventory: Inventory, prober: Prober) -> Verdict:
    """Hold the mapping against the driver, and say where its order is not the expected one."""
    probed = prober.ask(answer.value, answer.order, inventory)
    verdict = compare(answer, probed, inventory.devices)
    version = inventory.driver_version
    unasked = resolve(answer.value, inventory.devices, order=answer.order, driver_version=version)
    before = compare(unasked, probed, inventory.devices)
    if verdict.ok and before.ok is False:
        return Verdict(True, f"{verdict.reason}, against expectation: {before.reason}")
    return verdict


def _of_process(options: argparse.Namespace, frame: Frame | None) -> ProcessMapping:
    from gputop.agent.process.surroundings import look_closely

    pid = options.pid
    if options.value is not None or options.unset or options.order or frame is None:
        raise UsageError("--pid asks about that process's own variables on this machine: give no "
                         "VALUE, --unset, --order or --inventory with it")  # fmt: skip
    if options.verify:
        raise UsageError("--verify asks for this shell's GPUs, which need not be those of --pid")
    around = look_closely(pid)
    if around.environ.missing == "gone":
        raise UsageError(f"there is no process {pid} here")
    return LogicalNames(frame).of(pid, around)


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
    form = log_json if options.map_json else log_text
    _write(form(log, inventory.devices, advice))
    return 0 if log.has_gpu else 1


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
