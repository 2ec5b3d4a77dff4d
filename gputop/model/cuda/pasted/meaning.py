"""What a pasted text means on a machine: its GPUs, and those that its program asks for.

Programs ask for GPUs by options: `--device cuda:2`, `--gpu 3`, `--nproc_per_node 4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gputop.model.cuda.advice import request_advice
from gputop.model.cuda.enumeration import CudaDevice, shown
from gputop.model.cuda.mapping import Mapping, unknown_mapping
from gputop.model.cuda.pasted.outcome import Pasted
from gputop.model.cuda.pasted.programs import words
from gputop.model.cuda.reach import DeviceSet, container_set
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.finding import Finding
from gputop.model.machine.text import printable

_NAMED = re.compile(
    r"(?<![\w.])(?:(?:torch\.)?cuda:([0-9]{1,4})|CUDA([0-9]{1,4})|/?(?:device:)?gpu:([0-9]{1,4}))(?![\w.:])",
    re.IGNORECASE,
)
_CALLED = re.compile(
    r"(?:set_device|CudaDevice|torch\.device|cuda\.device)\((?:id=|[\"']cuda[\"'],\s*)?([0-9]{1,4})\)"
)
_INDEX_OPTIONS = words(
    """
    --cuda --cuda-device --cuda_device --cuda_id --device --device-id --device_id --device_num
    --gpu --gpu-id --gpu_id --gpu_idx --gpuid --local-rank --local_rank --main-gpu --main_gpu
    """
)
"""Options that give the number of one GPU, as the program counts."""
_COUNT_OPTIONS = words(
    """
    --data-parallel-size --n-gpus --n_gpus --ngpus --nproc-per-node --nproc_per_node
    --num-gpus --num-processes --num_gpus --num_processes --tensor-parallel-size
    --tensor_parallel_size --tp --tp-size --tp_size -tp
    """
)
"""Options that give the number of GPUs that the program uses on this machine."""
_LIMIT = 2000


def meaning(
    pasted: Pasted,
    devices: Sequence[CudaDevice],
    *,
    order: str | None = None,
    cuda_order: Sequence[int] | None = None,
    driver_version: str | None = None,
) -> Mapping:
    """Work out which GPUs the program of a text gets; claim nothing if `pasted` is unknown."""
    if pasted.unknown is not None:
        return unknown_mapping(None, order, pasted.unknown)
    inside = DeviceSet(tuple(devices), "")
    if pasted.gpus is not None:
        inside = container_set(devices, pasted.gpus)
        if inside.devices is None:
            return unknown_mapping(pasted.value, order, inside.because)
    mapping = resolve(
        pasted.value,
        inside.devices or (),
        order=order,
        cuda_order=inside.order_within(cuda_order),
        driver_version=driver_version,
    )
    reason = f"the container gets {shown(pasted.gpus or '')} only"
    return mapping.hiding(inside.missing(devices), reason)


def in_this_shell(pasted: Pasted) -> bool:
    """Return whether the value means the same in a shell of this machine."""
    return pasted.unknown is None and pasted.gpus in (None, "all")


def requests_advice(words: Sequence[str], mapping: Mapping) -> tuple[Finding, ...]:
    """Return advice on the GPUs that a command line asks for and that a mapping does not have."""
    options = list(_options(words))
    names = dict.fromkeys(name for option in options for name in _names(*option))
    advice = [request_advice(name, mapping) for name in names]
    advice += [_too_many(option, value, mapping) for option, value in options]
    return tuple(dict.fromkeys(item for item in advice if item is not None))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pair each word with the option that it is a value of, or with "" if there is none."""
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.startswith("-"):
            yield name, value
            option = ""
        elif re.match(r"-+[A-Za-z]", word):
            option = word
        else:
            yield option, word
            option = ""


def _names(option: str, value: str) -> Iterator[str]:
    text = value[:_LIMIT]
    for match in (*_NAMED.finditer(text), *_CALLED.finditer(text)):
        number = match[match.lastindex or 0]
        yield f"/device:GPU:{number}" if "gpu:" in match[0].lower() else f"cuda:{number}"
    if option in _INDEX_OPTIONS and re.fullmatch("[0-9]{1,4}", value):
        yield f"cuda:{value}"


def _too_many(option: str, value: str, mapping: Mapping) -> Finding | None:
    if option not in _COUNT_OPTIONS or not re.fullmatch("[0-9]{1,4}", value):
        return None
    count = mapping.count
    if count is None or int(value) <= count or (option.startswith("--num") and count == 0):
        return None
    visible = f"{count} GPU{' is' if count == 1 else 's are'} visible"
    text = printable(f"{option} {value} asks for {value} GPUs, and {visible}.")
    return Finding("error", "request-too-many", text)
