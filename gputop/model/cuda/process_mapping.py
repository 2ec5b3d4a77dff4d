"""The mapping of a running process: its own variables among the GPUs that it can reach, compared
with the GPUs on which the driver sees it.

    environment.py       the variables that it was started with
    reach.py             the GPUs that it can reach: container, Slurm job, MPS server
    process_mapping.py   what CUDA makes of both (this module)
    evidence.py          whether the driver's lists of processes agree
    logical_names.py     the mappings of all processes of a frame
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gputop.model.cuda.advice import (
    container_advice,
    environ_advice,
    evidence_advice,
    mps_advice,
)
from gputop.model.cuda.entries import EntryReason, kind_of
from gputop.model.cuda.enumeration import CERTAINTY_WORDS, CudaDevice
from gputop.model.cuda.evidence import Evidence, inferred, is_among, only_device, weigh
from gputop.model.cuda.export import shell_lines, uuid_export_line
from gputop.model.cuda.mapping import Hidden, Mapping, unknown_mapping, weaker
from gputop.model.cuda.probe import probed_order
from gputop.model.cuda.reach import (
    NODES,
    DeviceSet,
    Machine,
    ProcessView,
    is_mps_client,
    reachable,
)
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.environment import NAME, ORDER, CudaContext, Environ, job_of
from gputop.model.machine.finding import Finding
from gputop.model.machine.text import printable

_WHY_UNKNOWN = {
    "overwritten": "the process wrote over the variables that it was started with",
    "unreadable": "only root and its owner may read the variables of this process",
    "gone": "the process has ended",
    "too_long": "its variables are too long to read",
    "no_answer": "the process does not answer: it keeps its memory or its execution locked",
}
_IN_A_WORD = {"overwritten": "env-lost", "unreadable": "private"}
_STATES = {"overwritten": "overwritten", "unreadable": "private", "gone": "gone",
           "too_long": "too long", "no_answer": "does not answer"}  # fmt: skip
_NOTHING: tuple[EntryReason, ...] = ("empty_value", "negative", "not_a_number", "empty_entry")
"""Reasons for which a list ends at its first entry, whatever the GPUs are."""


class ProcessMapping(msgspec.Struct, frozen=True):
    """What CUDA's devices are inside a process."""

    mapping: Mapping
    evidence: Evidence
    inside: DeviceSet
    environ: Environ
    advice: tuple[Finding, ...] = ()
    mps: bool = False
    """An MPS server numbers its GPUs."""

    def name(self, device: CudaDevice) -> str | None:
        """Return what the process calls a GPU or MIG device that it uses: `cuda:0`, or `cuda:0?` if
        that is only likely; None if it is not known."""
        return dict(self.evidence.names).get(device.id)

    def why_not(self) -> str | None:
        """Return why there is no name, in a word; None if no word is needed."""
        if self.evidence.kind == "contradicted":
            return "?"
        if self.mapping.certainty != "unknown":
            return None
        return _IN_A_WORD.get(self.environ.missing, "unknown")

    def reasoning(self, *, named: bool = True) -> tuple[str, ...]:
        """Return how the mapping was found, in printable sentences; if not `named`, without the
        names that it gives the GPUs."""
        meaning = self._meaning if named or not self.mapping.visible else self._certainty
        lines = (_started(self.environ), self.reach, meaning, self.evidence.because)
        return tuple(printable(line, 600) for line in lines if line)

    @property
    def _certainty(self) -> str:
        how = CERTAINTY_WORDS[self.mapping.certainty]
        how = how if self.mapping.documented else "not documented"
        return f"The names are {how}: {self.mapping.because}."

    @property
    def _meaning(self) -> str:
        mapping, kind = self.mapping, self.evidence.kind
        if mapping.visible is None:
            return f"Which GPU is cuda:0 in it is not known: {mapping.because}."
        names = [f"cuda:{k} is {device.label}" for k, device in enumerate(mapping.visible)]
        how = CERTAINTY_WORDS[mapping.certainty] if mapping.documented else "not documented"
        where = {"ambiguous": "By these alone", "inferred": "Probably"}.get(kind, "There")
        return f"{where} {', '.join(names) or 'no GPU is visible'} ({how}: {mapping.because})."

    @property
    def reach(self) -> str:
        """A sentence on the GPUs that it can reach; empty if nothing limits them or is known."""
        if not self.inside.reason or self.inside.devices is None:
            return ""
        if self.inside.reason == NODES and not self.inside.devices:
            return "It reaches no GPU: it sees no device node of one, as /dev/nvidia0."
        names = ", ".join(device.label for device in self.inside.devices) or "no GPU"
        return printable(f"It reaches {names}: {self.inside.reason}.", 600)

    @property
    def unread(self) -> str | None:
        """Why its variables are not known; None if they are."""
        return _WHY_UNKNOWN.get(self.environ.missing)

    @property
    def on(self) -> frozenset[int]:
        """The NVML indices of the GPUs that it is known to use."""
        return frozenset(index for (index, _, _), _ in self.evidence.names)

    @property
    def explained(self) -> bool:
        """Whether its evidence, `reach` or `unread` already say why its mapping is not exact."""
        reached = self.inside.reason and self.inside.reason in self.mapping.because
        return bool(reached or self.unread) or self.evidence.kind == "contradicted"

    @property
    def variables(self) -> str:
        """`read` if its variables are known, otherwise why not, in a word or two."""
        return _STATES.get(self.environ.missing, "read")

    @property
    def shell_lines(self) -> tuple[str, ...]:
        """Lines that give a program started in gputop's shell the same GPUs; none if they are not
        known. Numbers that count inside a container or a job are of no use outside it."""
        if self.unread or self.evidence.kind in ("contradicted", "inferred", "ambiguous"):
            return ()
        if self.inside.reason or self.inside.devices is None:
            uuids = uuid_export_line(self.mapping)
            return (uuids,) if uuids else ()
        return shell_lines(self.mapping)


def process_mapping(
    context: CudaContext, machine: Machine, used: Sequence[CudaDevice], *, mps: bool | None = None
) -> ProcessMapping:
    """Work out what CUDA's devices are inside a process.

    `used` are the GPUs and MIG devices on which the driver lists it with memory in use. `mps` is
    whether the driver lists it as an MPS client; None: the driver does not list it.

    Its own variables come first. Those of a process that it started are used only if its own are
    not known, or do not explain where the driver sees it.
    """
    process, own = ProcessView(context, machine, used, mps), context.environ
    inside, client = reachable(process), is_mps_client(process)
    contained = context.in_container or machine.surroundings.container
    advice = environ_advice(own, in_container=contained, limited=bool(inside.reason))
    because = _WHY_UNKNOWN.get(own.missing)
    if because is None:
        mapping = _resolve(inside, process)
        evidence = weigh(mapping, inside, process)
    else:
        nothing = inside.devices == () and not used  # whatever its variables are
        mapping = resolve(None, ()) if nothing else unknown_mapping(None, None, because)
        evidence = only_device(inside, process)
    guess = None if evidence.settles or inside.devices == () else _guess(process)
    if guess is not None:
        theirs, whose = guess
        mapping, evidence = _inferred(mapping, theirs), inferred(theirs, process, whose)
        advice = tuple(item for item in advice if item.code != "env-clobbered")
    elif because is None:
        advice = (*advice, *_judged(mapping, evidence, inside, process))
    return ProcessMapping(_held(mapping, evidence), evidence, inside, own, advice, client)


def _judged(
    mapping: Mapping, evidence: Evidence, inside: DeviceSet, process: ProcessView
) -> tuple[Finding, ...]:
    if inside.order is not None:
        counted = mps_advice(inside, mapping)
    else:
        job = job_of(process.variables) or "the batch job"
        where = job if inside.reason.startswith("SLURM") else "the container"
        counted = container_advice(mapping, process.machine.devices, inside.devices, where)
    return (*counted, *evidence_advice(mapping, evidence, process.used))


def _guess(process: ProcessView) -> tuple[Mapping, str] | None:
    """Return the mapping by the variables of a process that it started or that started it, and
    whose they are; None if they do not fit."""
    relatives = (
        (process.context.descendant, "a process that it started", "set them itself"),
        (process.context.ancestor, "the process that started it", "inherited them"),
    )
    for relative, who, how in relatives if process.used else ():
        if relative is not None:
            context = msgspec.structs.replace(process.context, environ=relative.environ)
            theirs = process._replace(context=context)
            guess = _resolve(reachable(theirs), theirs)
            if is_among(process.used, guess):
                return guess, f"{who} ({relative.pid}): it has probably {how}"
    return None


def _inferred(own: Mapping, guess: Mapping) -> Mapping:
    because = "that fits the variables of another process"
    return msgspec.structs.replace(
        guess.weakened("predicted", because),
        value=own.value,
        order=own.order,
        reason=None,
        entries=(),
        hidden=(),
    )


def _held(mapping: Mapping, evidence: Evidence) -> Mapping:
    if evidence.kind == "contradicted":
        because = f"the driver sees it on a GPU that {evidence.against}"
        return unknown_mapping(mapping.value, mapping.order, because)
    if evidence.kind != "ambiguous" or mapping.visible is None:
        return mapping
    because = "the program may have hidden GPUs itself, which its variables do not show"
    return mapping.weakened("predicted", because)


def _resolve(inside: DeviceSet, process: ProcessView) -> Mapping:
    machine = process.machine
    value, order = process.variables.get(NAME), process.variables.get(ORDER)
    if inside.devices is None:
        return _anywhere(value, order, inside.reason, process)
    counted = inside.order or probed_order(machine.probed, order, machine.devices)
    reached = {device.index for device in inside.devices}
    mapping = resolve(
        value,
        inside.devices,
        order=order,
        cuda_order=None if counted is None else [index for index in counted if index in reached],
        driver_version=machine.driver_version,
    )
    mapping, why = _capped(mapping, inside, process), f"not among {inside.reason}"
    outside = (Hidden(device, why) for device in inside.missing(machine.devices))
    return msgspec.structs.replace(mapping, hidden=(*mapping.hidden, *outside))


def _capped(mapping: Mapping, inside: DeviceSet, process: ProcessView) -> Mapping:
    """Limit a mapping to the certainty of its GPUs, unless whole UUIDs name GPUs in use."""
    seen = _whole_uuids(mapping) and _is_seen(mapping, process.used)
    surer = weaker(mapping.certainty, inside.certainty) != mapping.certainty
    if seen or hides_all(mapping) or (not surer and inside.order is None):
        return mapping
    because = (
        "which GPUs its batch job has is not known: these names count all that the driver lists"
    )
    if inside.order is not None:
        because = "a client counts the GPUs as its MPS server left them"
    elif inside.reason:
        because = f"that follows from {inside.reason}"
    return mapping.weakened(inside.certainty, because)


def _anywhere(value: str | None, order: str | None, because: str, process: ProcessView) -> Mapping:
    """Return what holds whichever GPUs the process reaches: a list that ends at once hides all, a
    whole UUID names the same GPU anywhere (if it is there). Integers count unknown GPUs."""
    machine = process.machine
    mapping = resolve(value, machine.devices, order=order, driver_version=machine.driver_version)
    if hides_all(mapping):
        return mapping
    if not value or kind_of(value) == "integer" or not _whole_uuids(mapping):
        return unknown_mapping(value, order, because)
    if not _is_seen(mapping, process.used):
        mapping = mapping.weakened("expected", because)
    return msgspec.structs.replace(mapping, hidden=())


def hides_all(mapping: Mapping) -> bool:
    """Return whether a value hides every GPU, whatever the GPUs are."""
    stop = mapping.stopped_at
    first = mapping.reason == "empty_value" or (stop is not None and stop.position == 0)
    return mapping.count == 0 and first and mapping.reason in _NOTHING


def _is_seen(mapping: Mapping, used: Sequence[CudaDevice]) -> bool:
    return {device.id for device in mapping.visible or ()} <= {device.id for device in used}


def _whole_uuids(mapping: Mapping) -> bool:
    """Return whether every GPU is named by its whole UUID: a prefix may fit others elsewhere."""
    uuids = [device.own_uuid for device in mapping.visible or ()]
    return mapping.visible is not None and (mapping.value or "").split(",") == uuids


def _started(environ: Environ) -> str:
    because = _WHY_UNKNOWN.get(environ.missing)
    if because is not None:
        return f"What it was started with cannot be read: {because}."
    parts = []
    for name in (NAME, ORDER):
        value = environ.variables.get(name)
        parts.append(f"{name} unset" if value is None else f"{name}={printable(value, 200)}")
    return f"It was started with {' and '.join(parts)}."
