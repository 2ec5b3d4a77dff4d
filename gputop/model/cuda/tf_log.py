"""What a TensorFlow log says about GPUs: device mappings and where operations were placed.

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

from gputop.model.cuda.enumeration import CudaDevice, normalize_bus_id
from gputop.model.machine.finding import Finding
from gputop.model.machine.text import counted, plural, printable

_NAME = (
    r"((?:/job:[\w-]+/replica:\d{1,9}/task:\d{1,9})?)"
    r"/(?:device:)?(GPU|XLA_GPU|CPU|XLA_CPU):(\d{1,9})"
)
_FLAGS = re.ASCII | re.IGNORECASE
# Spaces may be line ends: editors and chats wrap these long lines.
_DEVICE = re.compile(
    _NAME + r"(?:\s+with\s+(\d{1,9})\s+MB\s+memory)?[:)]*\s*->\s*(?:physical GPU )?\(?"
    r"device:\s*(\d{1,9}),\s*name:\s*([^,]{1,80}),\s*pci\s+bus\s+id:\s*([0-9a-f:.]+)",
    _FLAGS,
)
_XLA = re.compile(_NAME + r"\s*->\s*device:\s*XLA_GPU", _FLAGS)
_FOUND = re.compile(
    r"Found device (\d{1,9}) with properties:.{0,400}?pciBusID:?\s*([0-9a-f:.]+)",
    _FLAGS | re.DOTALL,
)
_GRAPH = re.compile(
    r"^(?:.*\] )?([\w./>^-]+): *(?:\([\w.]+\):? *)?" + _NAME + r"\s*$", _FLAGS | re.M
)
_EAGER = re.compile(r"Executing op (\S+) in device " + _NAME, _FLAGS)
_LIBRARY = re.compile(r"Could not (?:dlopen|load dynamic) library '([^']{1,80})'", re.ASCII)
_FAILED = re.compile(r"CUDA device ordinal (\d{1,9}).{0,400}CUDA_ERROR_OUT_OF_MEMORY", re.ASCII)
_REFUSED = re.compile(
    r"Cannot assign a device (?:to node|for operation) '?([\w./-]{1,80})'?:"
    r".{0,80}?specification '([^']{1,80})' because ([^.;\n]{1,80})",
    re.ASCII | re.DOTALL,
)
_LISTED = re.compile(r"name='/physical_device:(GPU|XLA_GPU):\d{1,9}'", re.ASCII)
_LOCAL = "/job:localhost/replica:0/task:0"


class LogDevice(msgspec.Struct, frozen=True):
    """A line of a device mapping."""

    name: str
    """As TensorFlow 2 spells it: /device:GPU:0, with job and task if those are not the local."""
    ordinal: int
    """The CUDA ordinal inside the process."""
    model: str
    bus_id: str
    memory_mb: int | None = None


class TfLog(msgspec.Struct, frozen=True, kw_only=True):
    devices: tuple[LogDevice, ...]
    xla: tuple[str, ...]
    """Names of XLA's devices: the same cards a second time."""
    bus_ids: dict[int, str]
    """The PCI bus ids of all GPUs that were found, used or not, by CUDA ordinal."""
    operations: dict[str, int]
    """The number of operations placed on each device, by its name."""
    on_cpu: tuple[str, ...]
    """The names of the operations on the CPU."""
    missing_libraries: tuple[str, ...]
    skipped: bool
    """TensorFlow registered no GPU."""
    full: tuple[int, ...]
    """Ordinals of GPUs that had no memory left."""
    refused: tuple[tuple[str, str, str], ...]
    """Operation, device, and why the operation could not be put there."""
    listed: dict[str, int]
    """The number of PhysicalDevice printed of each type: GPU, XLA_GPU."""

    @property
    def has_gpu(self) -> bool:
        """Whether TensorFlow had a GPU of its own."""
        names = [*self.operations, *(device.name for device in self.devices)]
        return "GPU" in self.listed or any("/device:GPU" in name for name in names)

    @property
    def xla_gpus(self) -> tuple[str, ...]:
        """The cards under XLA's names, with and without operations."""
        names = (*self.xla, *self.operations)
        return tuple(dict.fromkeys(name for name in names if "/device:XLA_GPU" in name))

    @property
    def sees_gpu(self) -> bool:
        """Whether TensorFlow itself or XLA had a card to work on."""
        on_xla = any("/device:XLA_GPU" in name for name in self.operations)
        return self.has_gpu or on_xla or (bool(self.xla_gpus) and not self.skipped)


def read_tf_log(text: str) -> TfLog:
    """Read a log or a part of one; skip what is not understood."""
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


def physical(bus_id: str, devices: Sequence[CudaDevice]) -> CudaDevice | None:
    """Return the GPU with a PCI bus id in any spelling; None if there is none."""
    address = normalize_bus_id(bus_id)
    gpus = (d for d in devices if address and normalize_bus_id(d.pci_bus_id) == address)
    return next(gpus, None)


def explain(log: TfLog, devices: Sequence[CudaDevice]) -> Iterator[Finding]:
    """Yield advice on what is easily misread in a log from a machine with these GPUs."""
    if log.devices:
        yield Finding("info", "tf-log-device-number", " ".join(_numbers(log, devices)))
    buses = {(normalize_bus_id(entry.bus_id), entry.ordinal) for entry in log.devices}
    if len({bus for bus, _ in buses}) < len(buses):
        message = "Two CUDA ordinals have the same bus id: the log was edited, or is of two"
        yield Finding("warning", "tf-log-repeated-bus-id", f"{message} programs.")
    if log.skipped:
        yield Finding("error", "tf-log-no-gpu", " ".join(_no_gpu(log, devices)))
    elif log.xla_gpus and not log.has_gpu:
        words = "No GPU of TensorFlow's own (/device:GPU:0) is in this log: if none was registered,"
        words = " ".join([words, _but_for_xla(log), *_seen_by_cuda(log, devices)])
        yield Finding("warning", "tf-log-xla-only", words)
    for ordinal in log.full:
        message = (
            f"The GPU with CUDA ordinal {ordinal} (after CUDA_VISIBLE_DEVICES) has no memory left."
            " list_local_devices() opens every visible GPU and fails on it: hide it, or use"
            " tf.config.list_physical_devices()."
        )
        yield Finding("error", "tf-log-full", message)
    for operation, device, reason in log.refused:
        message = (
            f"{operation} cannot be put on {device}: {reason}."
            " With allow_soft_placement=True TensorFlow puts it elsewhere."
        )
        yield Finding("error", "tf-log-refused", printable(message))
    if "XLA_GPU" in log.listed:
        count = log.listed.get("GPU", 0)
        are = "is" if count == 1 else "are"
        message = f"{counted(count, 'GPU')} {are} listed: the XLA_GPU are the same cards again."
        yield Finding("info", "tf-log-xla", message)
    if log.on_cpu and log.has_gpu:
        names = ", ".join(map(printable, log.on_cpu[:6])) + ", ..." * (len(log.on_cpu) > 6)
        message = f"On the CPU although there is a GPU: {names} (no GPU kernel, or placed there)."
        yield Finding("warning", "tf-log-on-cpu", message)


def _numbers(log: TfLog, devices: Sequence[CudaDevice]) -> Iterator[str]:
    ordinals = sorted({entry.ordinal for entry in log.devices})
    gpus = [physical(entry.bus_id, devices) for entry in log.devices]
    labels = ", ".join(str(gpu.index) if gpu else "none of this machine" for gpu in gpus)
    numbers = ", ".join(f"'device: {ordinal}'" for ordinal in ordinals)
    single = len(gpus) == 1
    are = "is the CUDA ordinal" if single else "are CUDA ordinals"
    yield f"{numbers} {are} inside the process."
    if any(gpus):
        yield f"The bus id{' says this is' if single else 's say these are'} physical GPU {labels}."
    else:
        yield "No GPU of this machine has such a bus id."
    if ordinals != list(range(len(ordinals))):
        yield (
            "CUDA_VISIBLE_DEVICES alone would count from 'device: 0': the program itself left"
            " GPUs out (visible_device_list), or the log is not whole."
        )


def _no_gpu(log: TfLog, devices: Sequence[CudaDevice]) -> Iterator[str]:
    if log.xla_gpus:
        yield f"TensorFlow registered no GPU of its own: {_but_for_xla(log)}"
    else:
        yield "TensorFlow registered no GPU: every ordinary operation runs on the CPU."
    if log.missing_libraries:
        libraries = ", ".join(map(printable, log.missing_libraries))
        version = re.search(r"libcudart\.so\.([0-9.]+)", libraries)
        cuda = f"CUDA {version[1]}, which" if version else "the CUDA version that"
        yield f"It could not load {libraries}: install {cuda} this TensorFlow was built for."
    yield from _seen_by_cuda(log, devices)


def _but_for_xla(log: TfLog) -> str:
    names = ", ".join(map(printable, log.xla_gpus[:8]))
    count = sum(n for name, n in log.operations.items() if "/device:XLA_GPU" in name)
    ran = f" ({counted(count, 'operation')} of this log)" if count else ""
    card, name = (plural(len(log.xla_gpus), noun) for noun in ("card", "name"))
    return (
        "operations run on the CPU, but for those that are compiled by XLA or placed on"
        f" {names}{ran}, the same {card} under XLA's {name}."
    )


def _seen_by_cuda(log: TfLog, devices: Sequence[CudaDevice]) -> Iterator[str]:
    gpus = {k: physical(bus_id, devices) for k, bus_id in log.bus_ids.items()}
    names = [f"CUDA ordinal {k} is GPU {gpu.index}" for k, gpu in gpus.items() if gpu]
    if names:
        yield f"CUDA itself saw the cards: {', '.join(names)}."
