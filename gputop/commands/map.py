"""`gputop map`: explains a CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import argparse
import os
import re
from contextlib import closing

import msgspec

from gputop.commands.shared.hosts import print_answers, timeout_of
from gputop.commands.shared.options import HOSTS_ONCE, JSON
from gputop.commands.shared.values import read_file
from gputop.errors import UsageError
from gputop.export.mapping import MappingReport, log_json, log_text, mapping_json, mapping_text
from gputop.model.cuda.advice import advise, environ_advice
from gputop.model.cuda.frameworks import FRAMEWORKS, Layers, read_layers, selected
from gputop.model.cuda.inventory import (
    Inventory,
    frame_inventory,
    read_inventory,
    usage_of,
    without,
)
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.cuda.mapping_query import MappingQuery, judge, read_line, result_of
from gputop.model.cuda.pasted.reading import Pasted
from gputop.model.cuda.probe import ProbeResult
from gputop.model.cuda.tf_log import explain, read_tf_log
from gputop.model.machine.environment import NAME, ORDER, Environ
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.output import write
from gputop.protocol.messages import Probe
from gputop.sources.ask import TIMEOUT, answers, ask, context_of, is_whole, readable_frame
from gputop.sources.opening import TABLE, open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName
from gputop.variables import callers_environment

_INTERVAL = 0.25
"""Seconds between frames; the first frame may be incomplete."""
_PROBE_TIMEOUT = 25.0
"""Seconds for one probe of the CUDA driver, in which it answers twice."""
DESCRIPTION = "Explain what a CUDA_VISIBLE_DEVICES means, here or on another machine."
EPILOG = """\
examples:
  gputop map 1,2,-1                        which GPU is cuda:0, what was dropped, why
  gputop map 'CUDA_VISIBLE_DEVICES=0;1 python x.py'    what is wrong with a line
  gputop map 2,1 --order PCI_BUS_ID --framework jax
  gputop map 1,2 --device cuda:2           is there such a GPU, and what is its name
  gputop map 1,2 --tf-visible-devices 1 --tf-logical 1:2048,2048
  gputop map --pid 21195                   what a running process was started with
  gputop map --pid 21195 -H node3          of one on another machine
  gputop map --verify                      your own variables, asked of the driver
  gputop map --inventory node-07.json 0,1  another machine, from its `gputop --json`
  python train.py 2>&1 | gputop map --tf-log -    which GPU its `device: 0` is

a line, a script or Python is read, never run. What it spells out is answered.
Everything else is not understood (a variable as value, two jobs with different
values, a loop): nothing is claimed, `devices` is null in JSON, `unknown` has the
word that was not understood, and the exit status is 2.

exit status: 0 something is visible, 1 nothing is, or the program asks for a GPU
that it does not see, 2 usage, or a line of which nothing can be claimed,
3 the NVIDIA driver cannot be read
"""
TAKES = {**HOSTS_ONCE, **JSON, "demo": ""}
APART = (
    *(("--inventory", other) for other in ("--verify", "-H", "--hosts", "--demo")),
    *(("--pid", other) for other in ("VALUE", "--unset", "--order", "--inventory", "--verify")),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    # argparse takes `-1,0` for an option; its own exception is for `-1` alone.
    parser._negative_number_matcher = re.compile(r"-[0-9]")
    add = parser.add_argument
    add("value", nargs="?", metavar="VALUE",
        help="a value, or a line of shell or Python (default: your own variables)")  # fmt: skip
    add("--pid", type=int, metavar="PID", help="what a running process was started with")
    add("--unset", action="store_true", help="as if CUDA_VISIBLE_DEVICES were not set")
    add("--order", metavar="ORDER", help="CUDA_DEVICE_ORDER")
    add("--verify", action="store_true", help="ask the CUDA driver of the machine as well")
    add("--tf-log", metavar="FILE", help="explain a TensorFlow log (-: standard input)")
    add = parser.add_argument_group("another machine").add_argument
    add("--inventory", metavar="FILE", help="its `gputop --json`, or a description")
    add("--driver", metavar="VERSION", help="its driver version")
    _add_program(parser.add_argument_group("what the program does"))


def _add_program(group: argparse._ArgumentGroup) -> None:
    add, ids = group.add_argument, [framework.id for framework in FRAMEWORKS]
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
    layers = _layers(options)
    _check(options)
    # Reading a log may take as long as the program that writes it: start no agent before.
    log = None if options.tf_log is None else read_file(options.tf_log)
    if options.inventory is not None:
        inventory = read_inventory(read_file(options.inventory), options.inventory)
        text, status = _answer(options, layers, log, inventory)
        write(text)
        return status

    def ask_host(host: HostName | None) -> tuple[str, int]:
        opened = open_source(
            host, _INTERVAL, demo=options.demo, less=TABLE, timeout=timeout_of(options)
        )
        with closing(opened) as source:
            frame = readable_frame(source, answers if options.pid is None else is_whole)
            return _answer(options, layers, log, frame_inventory(frame), source, frame)

    return print_answers(options, ask_host, TIMEOUT + 2 * _PROBE_TIMEOUT * options.verify)


def _check(options: argparse.Namespace) -> None:
    if options.inventory is not None and not re.match("[0-9]", options.driver or "0"):
        raise UsageError(f"--driver {options.driver!r} is not a version: write it as 580.65.06")
    if options.pid is not None and len(options.hosts) > 1:
        raise UsageError("a PID belongs to one machine: give one host")


def _answer(
    options: argparse.Namespace,
    layers: Layers,
    log: bytes | None,
    inventory: Inventory,
    source: Source | None = None,
    frame: Frame | None = None,
) -> tuple[str, int]:
    """Return the answer as text, and the exit status; `source` and `frame`: those of a machine that
    can be asked."""
    if log is not None:
        tf_log = read_tf_log(log.decode("utf-8", "replace"))
        advice = tuple(explain(tf_log, inventory.devices))
        text = (log_json if options.json else log_text)(tf_log, inventory.devices, advice)
        status = 0 if tf_log.sees_gpu else 1
    else:
        if options.pid is not None and source is not None and frame is not None:
            report = _of_pid(options.pid, source, frame)
        else:
            report = _of_text(options, inventory, source if options.verify else None)
        form = mapping_json if options.json else mapping_text
        text, status = form(report, inventory, layers, options.framework), _status(report, layers)
    return text.rstrip("\n") + "\n", status


def _layers(options: argparse.Namespace) -> Layers:
    return read_layers(
        options.tf_visible_devices,
        options.tf_logical,
        options.memory_fraction,
        jax=options.framework == "jax",
        jax_visible=options.jax_visible_devices,
        local_rank=options.local_rank,
        device=options.device,
    )


def _of_pid(pid: int, source: Source, frame: Frame) -> MappingReport:
    """Return what the CUDA variables of a process mean."""
    process = LogicalNames(frame).of(pid, context_of(source, pid))
    usage = usage_of(without(frame, pid))
    advice = (*process.advice, *advise(process.mapping, usage, beside=process.on))
    return MappingReport(process.mapping, advice, process)


def _of_text(
    options: argparse.Namespace, inventory: Inventory, driver: Source | None
) -> MappingReport:
    """Return what a value, a line, or the variables of this shell mean; `driver`: the source of the
    machine whose CUDA driver is asked as well."""
    asked, order, advice = _variables(options)
    if options.driver:
        inventory = msgspec.structs.replace(inventory, driver_version=options.driver)
    result = result_of(asked, order, inventory)
    if driver is not None:
        # The meaning of integers is exact if the driver itself gives the order.
        values = dict.fromkeys((None, result.mapping.value))
        probed = [ask(driver, Probe(text, order), _PROBE_TIMEOUT).probed[0] for text in values]
        result = result_of(asked, order, inventory, probed)
    advice = (*advice, *judge(result, inventory.usage))
    answer = result.probe_result
    if answer is not None and result.contradiction is not None:  # its order is not the expected one
        words = f"{answer.reason}, against expectation: {result.contradiction.reason}"
        answer = ProbeResult(True, words)
    asks_for_hidden = bool(result.request_advice)
    return MappingReport(result.mapping, advice, None, result.unknown, asks_for_hidden, answer)


def _status(report: MappingReport, layers: Layers) -> int:
    if report.unknown is not None:
        return 2
    raises = any(layer.selection.raises for layer in selected(report.mapping, layers))
    return 1 if report.mapping.count == 0 or raises or report.asks_for_hidden else 0


def _variables(
    options: argparse.Namespace,
) -> tuple[str | Pasted | None, str | None, tuple[Finding, ...]]:
    """Return the value or line, the order, and advice about the environment they come from."""
    elsewhere = options.inventory is not None or bool(options.hosts)
    # On another machine our order means nothing; on this one a program would inherit it.
    ours = not elsewhere or (options.value is None and not options.unset)
    order = os.environ.get(ORDER) if ours and options.order is None else options.order
    if options.unset:
        if options.value is not None:
            raise UsageError("--unset cannot be used with a VALUE")
        return None, order, ()
    if options.value is None:
        environ = Environ(callers_environment())
        advice = environ_advice(environ, in_container=True)
        return environ.variables.get(NAME), order, advice
    inherited = None if elsewhere else os.environ.get(NAME)
    line = read_line(MappingQuery(options.value, order, inherited=inherited))
    if line is None:
        return options.value, order, ()
    return line, line.order if options.order is None else order, ()
