"""What a TensorFlow log says of GPUs: device mappings and where operations were placed.

    TF before 1.4    Creating TensorFlow device (/gpu:0) -> (device: 0, name: N, pci bus id: B)
    TF 1             Created TensorFlow device (NAME with M MB memory) -> physical GPU (device: ...
    TF 2             Created device NAME with M MB memory:  -> device: 0, name: N, pci bus id: B
    any              NAME -> device: 0, name: N, pci bus id: B

`device:` is the CUDA ordinal inside the process, after CUDA_VISIBLE_DEVICES (`gpu_device.cc`,
tensorflow#473): only the bus id names the GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from gputop.model.advice import Advice
from gputop.model.enumeration import Device, normalize_bus_id
from gputop.model.text import printable

_NAME = r"((?:/job:[\w-]+/replica:\d+/task:\d+)?)/(?:device:)?(GPU|XLA_GPU|CPU|XLA_CPU):(\d+)"
_FLAGS = re.ASCII | re.IGNORECASE
# Spaces may be line ends: editors and chats wrap these long lines.
_DEVICE = re.compile(
    _NAME + r"(?:\s+with\s+(\d+)\s+MB\s+memory)?[:)]*\s*->\s*(?:physical GPU )?\(?"
    r"device:\s*(\d+),\s*name:\s*([^,]{1,80}),\s*pci\s+bus\s+id:\s*([0-9a-f:.]+)",
    _FLAGS,
)
_XLA = re.compile(_NAME + r"\s*->\s*device:\s*XLA_GPU", _FLAGS)
_FOUND = re.compile(
    r"Found device (\d+) with properties:.{0,400}?pciBusID:?\s*([0-9a-f:.]+)", _FLAGS | re.DOTALL
)
_GRAPH = re.compile(
    r"^(?:.*\] )?([\w./>^-]+): *(?:\([\w.]+\):? *)?" + _NAME + r"\s*$", _FLAGS | re.M
)
_EAGER = re.compile(r"Executing op (\S+) in device " + _NAME, _FLAGS)
_LIBRARY = re.compile(r"Could not (?:dlopen|load dynamic) library '([^']{1,80})'", re.ASCII)
_FAILED = re.compile(r"CUDA device ordinal (\d+).*CUDA_ERROR_OUT_OF_MEMORY", re.ASCII)
_REFUSED = re.compile(
    r"Cannot assign a device (?:to node|for operation) '?([\w./-]{1,80})'?:"
    r".{0,80}?specification '([^']{1,80})' because ([^.;\n]{1,80})",
    re.ASCII | re.DOTALL,
)
_LISTED = re.compile(r"name='/physical_device:(GPU|XLA_GPU):\d+'", re.ASCII)
_LOCAL = "/job:localhost/replica:0/task:0"


class LogDevice(msgspec.Struct, frozen=True):
    """A line of a device mapping."""

    name: str
    """As TensorFlow 2 spells it: /device:GPU:0; with job and task where that is not the local."""
    ordinal: int
    """The CUDA ordinal inside the process."""
    model: str
    bus_id: str
    memory_mb: int | None = None


class TfLog(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says."""

    devices: tuple[LogDevice, ...]
    xla: tuple[str, ...]
    """Names of XLA's devices: the same cards a second time."""
    bus_ids: dict[int, str]
    """By CUDA ordinal: what was found, whether or not it was used."""
    operations: dict[str, int]
    """By device name: how many operations were placed there."""
    on_cpu: tuple[str, ...]
    """The names of those on the CPU."""
    missing_libraries: tuple[str, ...]
    skipped: bool
    """TensorFlow registered no GPU."""
    full: tuple[int, ...]
    """Ordinals of GPUs that had no memory left."""
    refused: tuple[tuple[str, str, str], ...]
    """Operation, device, and why the one could not be put on the other."""
    listed: dict[str, int]
    """How many PhysicalDevice of a type were printed: GPU, XLA_GPU."""

    @property
    def has_gpu(self) -> bool:
        """Whether TensorFlow had a GPU."""
        names = [*self.operations, *(one.name for one in self.devices)]
        return "GPU" in self.listed or any("/device:GPU" in name for name in names)


def read_tf_log(text: str) -> TfLog:
    """Read a log, whole or in part; what is not understood is passed over."""
    devices = {match[0]: _device(match) for match in _DEVICE.finditer(text)}
    placed = {(match[1], _name(match, 2)): 1 for match in _GRAPH.finditer(text)}
    operations = Counter(device for _, device in placed)
    eager = [(match[1], _name(match, 2)) for match in _EAGER.finditer(text)]
    operations.update(device for _, device in eager)
    on_cpu = dict.fromkeys(name for name, device in (*placed, *eager) if "CPU" in device)
    return TfLog(
        devices=tuple(dict.fromkeys(devices.values())),
        xla=tuple(dict.fromkeys(_name(match, 1) for match in _XLA.finditer(text))),
        bus_ids={int(match[1]): match[2] for match in _FOUND.finditer(text)},
        operations=dict(sorted(operations.items())),
        on_cpu=tuple(on_cpu),
        missing_libraries=tuple(dict.fromkeys(_LIBRARY.findall(text))),
        skipped="Skipping registering GPU devices" in text or "no known devices" in text,
        full=tuple(sorted({int(ordinal) for ordinal in _FAILED.findall(text)})),
        refused=tuple(dict.fromkeys(_REFUSED.findall(text))),
        listed=dict(Counter(_LISTED.findall(text))),
    )


def _device(match: re.Match[str]) -> LogDevice:
    memory = None if match[4] is None else int(match[4])
    return LogDevice(_name(match, 1), int(match[5]), printable(match[6]), match[7], memory)


def _name(match: re.Match[str], first: int) -> str:
    """Spell a device as TensorFlow 2 does, from three groups of a match."""
    task = "" if match[first] == _LOCAL else match[first]
    return f"{task}/device:{match[first + 1].upper()}:{match[first + 2]}"


def physical(bus_id: str, devices: Sequence[Device]) -> Device | None:
    """Find the GPU with a PCI bus id, however that is spelled."""
    place = normalize_bus_id(bus_id)
    found = (d for d in devices if place and normalize_bus_id(d.pci_bus_id) == place)
    return next(found, None)


def explain(log: TfLog, devices: Sequence[Device]) -> tuple[Advice, ...]:
    """Say what is easily misread in a log of a program on a machine with these GPUs."""
    return tuple(_explain(log, devices))


def _explain(log: TfLog, devices: Sequence[Device]) -> Iterator[Advice]:
    if log.devices:
        yield _numbers(log, devices)
    buses = {(normalize_bus_id(entry.bus_id), entry.ordinal) for entry in log.devices}
    if len({bus for bus, _ in buses}) < len(buses):
        message = (
            "Two CUDA ordinals have the same bus id: the log was edited, or is of two programs."
        )
        yield Advice("tf-log-repeated-bus-id", "warning", message)
    if log.skipped:
        yield _no_gpu(log, devices)
    for ordinal in log.full:
        message = (
            f"The GPU with CUDA ordinal {ordinal} (after CUDA_VISIBLE_DEVICES) has no memory left."
            " list_local_devices() opens every visible GPU and fails on it: hide it, or use"
            " tf.config.list_physical_devices()."
        )
        yield Advice("tf-log-full", "error", message)
    for operation, device, reason in log.refused:
        message = (
            f"{operation} cannot be put on {device}: {reason}."
            " With allow_soft_placement=True TensorFlow puts it elsewhere."
        )
        yield Advice("tf-log-refused", "error", printable(message))
    if "XLA_GPU" in log.listed:
        message = (
            f"{log.listed.get('GPU', 0)} GPUs are listed: the XLA_GPU are the same cards again."
        )
        yield Advice("tf-log-xla", "info", message)
    if log.on_cpu and log.has_gpu:
        names = ", ".join(map(printable, log.on_cpu[:6])) + ", ..." * (len(log.on_cpu) > 6)
        message = f"On the CPU although there is a GPU: {names} (no GPU kernel, or placed there)."
        yield Advice("tf-log-on-cpu", "warning", message)


def _numbers(log: TfLog, devices: Sequence[Device]) -> Advice:
    """Say what the log's `device: N` are, and what they are not."""
    ordinals = sorted({entry.ordinal for entry in log.devices})
    found = [physical(entry.bus_id, devices) for entry in log.devices]
    labels = ", ".join(str(gpu.index) if gpu else "none of this machine" for gpu in found)
    numbers = ", ".join(f"'device: {ordinal}'" for ordinal in ordinals)
    one = len(found) == 1
    words = [
        f"{numbers} {'is the CUDA ordinal' if one else 'are CUDA ordinals'} inside the process.",
        f"The bus id{' says this is' if one else 's say these are'} physical GPU {labels}."
        if any(found)
        else "No GPU of this machine has such a bus id.",
    ]
    if ordinals != list(range(len(ordinals))):
        words.append(
            "CUDA_VISIBLE_DEVICES alone would count from 'device: 0': the program itself left"
            " GPUs out (visible_device_list), or the log is not whole."
        )
    return Advice("tf-log-device-number", "info", " ".join(words))


def _no_gpu(log: TfLog, devices: Sequence[Device]) -> Advice:
    """Explain a log in which TensorFlow has no GPU, perhaps with XLA's devices alone."""
    words = ["TensorFlow registered no GPU: every ordinary operation runs on the CPU."]
    if log.missing_libraries:
        libraries = ", ".join(map(printable, log.missing_libraries))
        version = re.search(r"libcudart\.so\.([0-9.]+)", libraries)
        cuda = f"CUDA {version[1]}, which" if version else "the CUDA version that"
        words.append(
            f"It could not load {libraries}: install {cuda} this TensorFlow was built for."
        )
    if log.xla:
        words.append(f"{', '.join(log.xla)} are the same cards under XLA's name, and no proof.")
    seen = {k: physical(bus_id, devices) for k, bus_id in log.bus_ids.items()}
    names = [f"CUDA ordinal {k} is GPU {gpu.index}" for k, gpu in seen.items() if gpu]
    if names:
        words.append(f"CUDA itself saw the cards: {', '.join(names)}.")
    return Advice("tf-log-no-gpu", "error", " ".join(words))
