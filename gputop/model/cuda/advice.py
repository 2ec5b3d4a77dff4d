"""Advice on mistakes around CUDA_VISIBLE_DEVICES.

They are in a value on a machine (`advise`), in what a program asks for (`request_advice`), in what
is typed in a shell or in Python (`text_advice`), or in the environment of a process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from gputop.model.cuda.entries import kind_of
from gputop.model.cuda.enumeration import ORDERS, PCI_BUS_ID, CudaDevice, shown
from gputop.model.cuda.evidence import HIDDEN, Evidence
from gputop.model.cuda.inventory import DeviceUse
from gputop.model.cuda.mapping import Mapping as CudaMapping
from gputop.model.cuda.reach import DeviceSet
from gputop.model.machine.environment import CONTAINER, NAME, Environ, is_misspelt
from gputop.model.machine.finding import Finding, Level
from gputop.model.machine.text import counted, printable

# --- a value on a machine ------------------------------------------------------------------------

_AdviceRow = tuple[str, Level, str]
"""Code, level and text of a finding."""
_TF_MIN_SMS = 8
"""TF_MIN_GPU_MULTIPROCESSOR_COUNT if it is not set (TensorFlow, `gpu_device.cc`)."""
_NOTHING = {"none", "no", "void", "null", "nodevfiles", "false", "off", "nil"}
_JUNK = re.compile(r"\s*[+-]?([0-9]{1,9})(?![0-9])(\S.*|\s+\S.*)", re.ASCII | re.DOTALL)
_LIST = re.compile(r"[0-9]+(?:,[0-9]+)*|(?:GPU|MIG)-[0-9a-zA-Z,/-]+", re.ASCII)
"""A value that can be recommended as it stands, unlike other remains of a text."""
_RANGE = re.compile(r"\s*([0-9]{1,4})\s*(-|:|~|\.\.)\s*([0-9]{1,4})\s*", re.ASCII)
_BARE_UUID = re.compile(r"\s*[0-9a-fA-F]{8}-[0-9a-fA-F-]+\s*", re.ASCII)

# By the reason why a list ended; {rest} is what stays visible.
_STOPS: dict[str, _AdviceRow] = {
    "empty_entry": ("value-empty-entry", "warning",
        "Empty entry{before}: CUDA stops there, {rest}."),
    "out_of_range": ("value-out-of-range", "error", "There is no GPU {text} here: {rest}."),
    "unknown_uuid": ("value-unknown-uuid", "error",
        "No GPU here has a UUID starting {text}: {rest}."),
    "ambiguous_uuid": ("value-ambiguous-uuid", "error",
        "{text} is the start of several UUIDs: CUDA stops there, {rest}. Write more digits."),
    "kind_mismatch": ("value-mixed-kinds", "error",
        "Indices, GPU UUIDs and MIG UUIDs do not mix in one list: CUDA stops at {text}, {rest}."),
    "mig_one_ci_per_gi": ("mig-same-gi", "warning",
        "Both compute instances belong to one GPU instance: CUDA uses one of them."),
    "mig_single_instance": ("mig-single-instance", "warning",
        "Drivers before R570 give a process one MIG device: {rest}."),
    "not_a_number": ("value-word", "error", "{shown} is not a number: CUDA stops there, {rest}."),
}  # fmt: skip


def advise(
    mapping: CudaMapping,
    usage: Mapping[int, DeviceUse] | None = None,
    *,
    beside: Collection[int] = (),
) -> tuple[Finding, ...]:
    """Return advice on a value. `usage` is by NVML index, without the process whose value it is;
    `beside` are the indices of the GPUs that this process uses."""
    words = [*_of_form(mapping), *_of_entries(mapping)]
    words += _of_end(mapping, explained=bool(words))
    words += [*_of_order(mapping), *_of_gpus(mapping, usage or {}, beside)]
    return tuple(Finding(level, code, printable(text)) for code, level, text in words)


def rest_of(mapping: CudaMapping) -> str:
    """Return what is visible, as the end of a sentence."""
    if mapping.count == 0:
        return "NO GPU is visible"
    if mapping.visible is None:
        return "which GPUs are visible is not known"
    names = ", ".join(device.label for device in mapping.visible)
    return f"only {names} {'is' if mapping.count == 1 else 'are'} visible"


def _of_form(mapping: CudaMapping) -> Iterator[_AdviceRow]:
    value, rest = mapping.value or "", rest_of(mapping)
    plain = re.sub(r"[\s\"'\[\](){}]+", "", value)
    better = plain if _LIST.fullmatch(plain) else "the GPUs as 0,1"
    first = shown(value.split(",")[0])
    if mapping.value == "":
        text = "An empty value hides every GPU. On Windows it deletes the variable"
        yield "value-hides-all", "info", f"{text}: -1 works in both."
    elif value == plain and value.lower() in _NOTHING:
        text = "Not a documented word, but it does hide every GPU. The documented ways are an empty"
        yield "value-none", "info", f"{text} value or -1."
    elif re.search("[\"']", value):
        text = "The quotes are part of the value (set from an env file or from code): CUDA stops at"
        yield "value-quotes", "error", f"{text} {first} and {rest}. Write {better} without quotes."
    elif re.match(r"\s*[\[({]", value):
        text = f"Brackets are not understood: CUDA stops at {first} and {rest}. Write {better}."
        yield "value-brackets", "error", text
    for comma in (c for c in "，、" if c in value):
        text = f"'{comma}' (full-width comma) is not a separator: {rest}. Use an ASCII comma."
        yield "value-fullwidth-comma", "error", text
    if ";" in value:
        yield "value-semicolon", "error", f"';' does not separate GPUs: {rest}. Use commas."


def _of_entries(mapping: CudaMapping) -> Iterator[_AdviceRow]:
    count = len(mapping.visible or ()) + len(mapping.hidden)
    for entry in (entry for entry in mapping.entries[:64] if entry.outcome != "ignored"):
        text, span, junk = entry.text, _RANGE.fullmatch(entry.text), _JUNK.fullmatch(entry.text)
        rest = (junk[2].strip() or junk[2]) if junk else ""  # maybe a blank that C does not know
        if _BARE_UUID.fullmatch(text):
            words = f"A UUID without GPU- is read as a number. Write GPU-{text.strip()}."
            yield "value-uuid-without-prefix", "error", words
        elif span is not None:
            low, high = int(span[1]), min(int(span[3]), int(span[1]) + 63)
            better = ",".join(map(str, range(low, high + 1))) or "every index"
            words = f"Ranges are not supported: CUDA reads {low} and ignores"
            yield "value-range", "error", f"{words} '{span[2]}{span[3]}'. Write {better}."
        elif re.match("GPU-[0-9]{1,2}$", text) and int(text[4:]) < count:
            words = f"{text} is a UUID prefix, not index {text[4:]}: it selects the GPU whose UUID"
            words += f" starts with {text[4:]}. Write {text[4:]}."
            yield "value-gpu-dash-index", "warning", words
        elif junk is not None and re.match(r"\s+[0-9]", junk[2], re.A):
            words = f"Spaces do not separate GPUs: {rest_of(mapping)}. Use commas."
            yield "value-spaces", "error", words
        elif junk is not None and entry.documented and rest[0] not in ";，、":
            words = f"CUDA reads {junk[1]} and ignores {shown(rest)}."
            yield "value-junk", "warning", words


def _of_end(mapping: CudaMapping, *, explained: bool) -> Iterator[_AdviceRow]:
    """Yield advice on where the list ended, unless `explained`, and on what is undocumented."""
    stop, reason = mapping.stopped_at, mapping.reason
    earlier = [entry.text for entry in mapping.entries if stop and entry.position < stop.position]
    after = [entry.text for entry in mapping.entries if stop and entry.position > stop.position]
    hidden = [text for text in after if text not in earlier]
    if reason == "duplicate" and stop:
        text = f"CUDA rejects the whole list and {rest_of(mapping)}."
        if kind_of(mapping.value or "") == "integer":
            yield "value-duplicate", "error", f"A GPU is named twice: {text}"
        elif stop.text in earlier:
            yield "value-duplicate", "error", f"{printable(stop.text, 48)} is named twice: {text}"
        else:
            yield "value-duplicate-prefix", "error", f"Both prefixes are the same GPU: {text}"
    elif reason == "negative" and stop and hidden:
        names, verb = ", ".join(hidden[:16]), "is" if len(hidden) == 1 else "are"
        text = f"{stop.text} ends the list: {names} {verb} not visible."
        yield "value-hides-rest", "warning", text
    elif stop and reason in ("kind_mismatch", "unknown_uuid") and _has_blank_at_uuid(stop.text):
        text = f"Blanks are part of a UUID entry, so {rest_of(mapping)}. Write A,B."
        yield "value-spaces", "error", text
    elif stop and reason in _STOPS and not (explained and reason == "not_a_number"):
        code, level, template = _STOPS[reason]
        before = f" after {mapping.entries[stop.position - 1].text}" if stop.position else ""
        text, rest = printable(stop.text, 48), rest_of(mapping)
        words = template.format(text=text, shown=shown(stop.text), rest=rest, before=before)
        yield code, level, words
    elif reason in ("mig", "mig_abbreviated"):
        text = "What this names on a machine with MIG is not known: give full UUIDs of MIG devices."
        yield "mig-unknown", "info", text
    odd = next((entry for entry in mapping.entries if not entry.documented), None)
    if odd is not None and not explained and reason not in ("mig", "mig_one_ci_per_gi"):
        text = f"CUDA does not document how it reads {shown(odd.text)}."
        better = " Write a plain decimal index." if kind_of(odd.text) == "integer" else ""
        yield "value-uncertain", "info", text + better


def _has_blank_at_uuid(text: str) -> bool:
    return text != text.strip() and text.strip().startswith(("GPU-", "MIG-"))


def _of_order(mapping: CudaMapping) -> Iterator[_AdviceRow]:
    certainty = mapping.order_certainty or mapping.certainty
    uncertain = certainty in ("predicted", "unknown") and mapping.count
    if mapping.order not in ORDERS:
        text = "With anything but PCI_BUS_ID and FASTEST_FIRST, an empty text too, CUDA does not"
        yield "order-bad-value", "error", f"{text} start (error 101): {rest_of(mapping)}."
    elif uncertain and mapping.reason != "mig" and mapping.order != PCI_BUS_ID:
        how = "is predicted" if certainty == "predicted" else "is not known"
        text = f"The order {how}: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs."
        yield "order-unset", "warning", text


def _of_gpus(
    mapping: CudaMapping, usage: Mapping[int, DeviceUse], beside: Collection[int]
) -> Iterator[_AdviceRow]:
    chosen = mapping.visible or ()
    largest = max((device.sms or 0 for device in chosen), default=0)
    for k, device in enumerate(chosen):
        if device.instance is None:  # a MIG device's own share is not known
            also = "also " * (device.index in beside)
            used = usage.get(device.index, DeviceUse())
            yield from _of_usage(f"{device.label} (cuda:{k})", used, also)
        if device.sms is not None and device.sms < min(_TF_MIN_SMS, largest):
            text = f"TensorFlow ignores {device.label}: it has {device.sms} multiprocessors"
            yield "tf-skips-gpu", "info", f"{text} (TF_MIN_GPU_MULTIPROCESSOR_COUNT)."


def _of_usage(name: str, used: DeviceUse, also: str) -> Iterator[_AdviceRow]:
    by = f"{also}used by {' '.join(used.users)}" if used.users else ""
    if used.is_full:
        yield "gpu-full", "warning", f"{name} is full{': ' * bool(by)}{by}."
    elif by:
        yield "gpu-in-use", "info", f"{name} is {by}."


# --- what a program asks for ---------------------------------------------------------------------

# cuda:2, /device:GPU:2, CUDA2, device_id=2, CudaDevice(id=2), cuda.gpus[2], torch.device("cuda", 2)
_REQUEST = re.compile(
    r"(?<![a-z_])[a-z_]*(?:cuda|gpus?|device|id)[a-z_]*[\"']?[\s(\[:=,]{0,4}([0-9]{1,9})(?![0-9.])",
    re.ASCII | re.IGNORECASE,
)


def requested(name: str) -> int | None:
    """Return the k of a name such as cuda:2 or of a call with it; None if there is none."""
    match = _REQUEST.search(name[:200])
    return None if match is None else int(match[1])


def of_tensorflow(name: str) -> bool:
    """Return whether a name is TensorFlow's: /gpu:2, /device:GPU:2."""
    return re.search("gpu:[0-9]", name, re.IGNORECASE) is not None


def request_advice(name: str, mapping: CudaMapping) -> Finding | None:
    """Return advice if a name such as cuda:2 asks for a GPU that is not visible, otherwise None."""
    asked = requested(name)
    if asked is None or mapping.count is None or asked < mapping.count:
        return None
    stem, error = "cuda:", "'CUDA error: invalid device ordinal'"
    if of_tensorflow(name):
        stem, error = "/device:GPU:", "'unknown device', or another device with soft placement"
    visible = mapping.visible or ()
    names = [f"{stem}{k} ({device.label})" for k, device in enumerate(visible)]
    named = f", named {' and '.join(names)}" if names else ""
    many = f"{mapping.count or 'No'} GPU{'s are' if mapping.count > 1 else ' is'} visible{named}."
    k = next((k for k, d in enumerate(visible) if d.index == asked and not d.instance), None)
    fix = "" if k is None else f" For physical GPU {asked} use {stem}{k}."
    message = f"{many} {stem}{asked} does not exist: {error}.{fix}"
    return Finding("error", "request-out-of-visible", message)


_NAMED = re.compile(
    r"(?<![\w.])(?:(?:torch\.)?cuda:([0-9]{1,4})|(?-i:CUDA)([0-9]{1,4})|/?(?:device:)?gpu:([0-9]{1,4}))"
    r"(?![\w.:])|(?:set_device|CudaDevice|device)\((?:id=|[\"']cuda[\"'],\s*)?[0-9]{1,4}\)",
    re.IGNORECASE,
)
_INDEX_OPTION = re.compile(
    r"--(?:cuda|device|gpu)(?:[-_]?(?:id|idx|device))?|--(?:local[-_]rank|main[-_]gpu)"
)
"""Options that give the number of one GPU, as the program counts."""
_COUNT_OPTION = re.compile(
    r"-tp|--(?:tp(?:[-_]size)?|n[-_]?gpus|num[-_]gpus|(?:gpu|device)[-_]?num|num[-_]processes|nproc[-_]per[-_]node"
    r"|(?:tensor|data)[-_]parallel[-_]size)"
)
"""Options that give the number of GPUs that the program uses on this machine."""
_SEVERAL_MACHINES = re.compile("--(?:nnodes|num[-_]machines|.*[-_]size[-_]local)")
"""Options with which those that give a number of GPUs mean all machines."""
_MOST, _MOST_OF_TEXT = 2000, 16384
"""Characters of a word and of a text that are searched."""


def requests_advice(words: Sequence[str], mapping: CudaMapping) -> tuple[Finding, ...]:
    """Return advice on the GPUs that a command line asks for and that a mapping does not have."""
    advice: list[Finding | None] = []
    option, several = "", any(map(_SEVERAL_MACHINES.match, words))
    for word in words:
        name, equals, value = word[:_MOST].partition("=")
        if not equals and re.match(r"-+[A-Za-z]", word):
            option = word
            continue
        option, value = (name, value) if equals and name[:1] == "-" else (option, word[:_MOST])
        names = [] if option == "--gres" else [match[0] for match in _NAMED.finditer(value)]
        if re.fullmatch("[0-9]{1,4}", value):
            names += [f"cuda:{value}"] if _INDEX_OPTION.fullmatch(option) else []
            if _COUNT_OPTION.fullmatch(option) and not several:
                advice.append(_too_many(option, int(value), mapping))
        advice += [request_advice(name, mapping) for name in names]
        option = ""
    return tuple(dict.fromkeys(item for item in advice if item is not None))


def _too_many(option: str, wanted: int, mapping: CudaMapping) -> Finding | None:
    count = mapping.count
    if count is None or wanted <= count or (option.startswith("--num") and count == 0):
        return None
    are = "is" if count == 1 else "are"
    text = f"{option} {wanted} asks for {counted(wanted, 'GPU')}, and {counted(count, 'GPU')} {are}"
    text = printable(f"{text} visible.")
    return Finding("error", "request-too-many", text)


# --- what is typed in a shell or in Python -------------------------------------------------------

_SET = rf"\b{NAME}="
_GIVES = re.compile(r"(?:^|(?<=[\s;&|!]))([A-Za-z_][\w-]*)=|[\"']([A-Za-z_]\w*)[\"'][\]:,]")
_SLIPS: dict[str, tuple[Level, str, str]] = {
    "shell-dollar": ("error", rf"{_SET}[\"']?\$0\b",
        "'$0' is the shell's own name. Write a plain 0."),
    "shell-set": ("error", rf"^[ \t]*set[ \t]+{NAME}=[\"']?([\w,-]{{1,99}})(?![\w,-])",
        "'set' is Windows cmd syntax; in bash it sets $1. Use export {NAME}={0}."),
    "shell-sudo": ("warning", rf"{_SET}\S*[ \t]+sudo[ \t]+(?!-\w*E|--preserve-env"
        rf"(?: |=\S*{NAME}))",
        "sudo drops the variable: put it after sudo (sudo {NAME}=1 python ...) or use sudo -E."),
    "shell-space-before-equals": ("error",
        rf"^[ \t]*{NAME}[ \t]+=[ \t]*[\"']?([\w,-]{{1,99}})(?![\w,-])",
        "Space before '=': bash runs a command called {NAME} and masks nothing. Write {NAME}={0}."),
    "shell-space-after-equals": ("error", rf"{_SET}[ \t]+([0-9]+)[ \t]+[^\d\s]",
        "Space after '=': this hides every GPU and runs a command called {0}."),
    "shell-space-in-list": ("error", rf"(?<!export )(?<!%env ){_SET}((?:[0-9]+,)+)[ \t]+([0-9]+)",
        "Space in the list: the value is {0} and a command called {1} is run. Separate GPUs with"
        " commas."),
    "shell-semicolon": ("error", rf"{_SET}[0-9,]+;([0-9]+)",
        "';' ends the command: the variable is set for this shell only and a command called {0} is"
        " run. Separate GPUs with commas."),
    "shell-not-exported": ("error", rf"^[ \t]*{NAME}=\S*[ \t]*(?:;|&&|$)",
        "{NAME} is not exported: the program does not see it. Use export, or write it before the"
        " program's name."),
    "python-type": ("error", rf"\[[\"']{NAME}[\"']\]\s*=\s*([0-9]+)\s*$",
        "os.environ takes strings only: this raises a TypeError. Put {0} in quotes."),
}  # fmt: skip
"""Slips of the pen: level, what to search a text for, and what is said of it."""


def misspelt_in(text: str) -> list[str]:
    """Return names that a text gives a value and that were meant to be CUDA_VISIBLE_DEVICES."""
    pairs = _GIVES.findall(text[:_MOST_OF_TEXT])
    names = [key if "environ" in text else name or key for name, key in pairs]
    return [name for name in dict.fromkeys(names) if is_misspelt(name) and NAME not in name]


def text_advice(
    text: str, value: str | None, inherited: str | None, *, is_known: bool
) -> tuple[Finding, ...]:
    """Return advice on a text of a shell or of Python without its comments, after which the
    variable has a `value` (None: unset), unless that is not known."""
    advice, text = list[Finding](), text[:_MOST_OF_TEXT]
    for code, (level, pattern, template) in _SLIPS.items():
        match = re.search(pattern, text, re.MULTILINE)
        loses = code in ("shell-sudo", "shell-not-exported")
        if match is not None and loses == is_known and not (loses and value is not None):
            message = template.format(*match.groups(), NAME=NAME)
            advice.append(Finding(level, code, printable(message, 400)))
    beside = Environ({} if value is None else {NAME: value})
    advice += [name_advice(name, beside, limited=not is_known) for name in misspelt_in(text)]
    if f"{CONTAINER}=" in text and value is None:
        advice.append(container_variable_advice())
    if value is not None and value == inherited and f"{NAME}=" not in text:
        words = f"The text does not set {NAME}: the program inherits it from its shell,"
        message = printable(f"{words} as gputop did: {value}.", 400)
        advice.append(Finding("info", "shell-inherited", message))
    return tuple(advice)


# --- the environment of a process ----------------------------------------------------------------


def name_advice(name: str, environ: Environ, *, limited: bool = False) -> Finding:
    """Return the advice that a misspelt name is not read. `environ` are the variables beside it,
    `limited` is whether some GPUs are out of reach anyway."""
    beside = environ.variables.get(NAME)
    counts = "As it stands every GPU is visible"
    if beside is not None:
        counts = f"What counts is {printable(f'{NAME}={beside}', 200)}"
    elif limited:
        counts = "As it stands no GPU is hidden by it"
    message = f"{printable(name, 64)} is not read by CUDA. Did you mean {NAME}? {counts}."
    return Finding("error", "name-typo", message)


def container_variable_advice() -> Finding:
    """Return the advice that the container runtime's variable means nothing to CUDA."""
    message = f"{CONTAINER} is read by the container runtime only; CUDA ignores it. Use {NAME}."
    return Finding("warning", "nvidia-visible-outside-container", message)


def environ_advice(
    environ: Environ, *, in_container: bool = False, limited: bool = False
) -> tuple[Finding, ...]:
    """Return advice on a process's variables; `limited`: some GPUs are out of its reach."""
    advice = [name_advice(name, environ, limited=limited) for name in environ.misspelt]
    if environ.missing == "overwritten":
        message = (
            "The process overwrote its start-up environment (setproctitle: Ray, vLLM, gunicorn)."
            f" {NAME} cannot be read; showing only what NVML proves."
        )
        advice.append(Finding("info", "env-clobbered", message))
    names = environ.variables
    if CONTAINER in names and NAME not in names and not in_container:
        advice.append(container_variable_advice())
    return tuple(advice)


def evidence_advice(
    mapping: CudaMapping, evidence: Evidence, used: Sequence[CudaDevice]
) -> Iterator[Finding]:
    """Yield advice if the driver's lists contradict a process's variables or leave them open."""
    names = ", ".join(device.label for device in used)
    if evidence.kind == "contradicted":
        why = (
            "it opened the GPU before it entered its container or job, or another process handed"
            " it over"
        )
        if evidence.against == HIDDEN:
            why = (
                "the program changed them before CUDA started (afterwards that has no effect), or"
                " counts other GPUs"
            )
        message = f"The process runs on {names}, which {evidence.against}: {why}."
        yield Finding("warning", "env-contradicted", message)
    elif evidence.kind == "ambiguous" and len(used) == 1 and mapping.visible:
        k = [device.id for device in mapping.visible].index(used[0].id)
        message = (
            f"The program may have set {NAME} itself (invisible in /proc) or simply chosen"
            f" cuda:{k}; the logical name of {names} is cuda:0 in the first case and cuda:{k} in"
            " the second."
        )
        yield Finding("info", "set-in-process", message)


def host_pid_advice(pid: int, gpus: Sequence[str]) -> Finding:
    """Return the advice that the driver's PID need not be that of the process here."""
    message = (
        f"The driver lists a process {pid} on {', '.join(gpus)}, which may be a host PID and"
        " another process."
    )
    return Finding("info", "host-pid", message)


def mps_advice(inside: DeviceSet, client: CudaMapping) -> Iterator[Finding]:
    """Yield advice on an MPS client's value; `inside` are the GPUs that it counts, its server's."""
    stop, order = client.stopped_at, inside.order
    if stop is None or client.reason != "out_of_range" or not order:
        return
    numbers = ",".join(map(str, range(len(order))))
    message = (
        f"The MPS server already renumbered {','.join(map(str, order))} to {numbers}; the client's"
        f" index {printable(stop.text, 24)} is invalid. Use UUIDs in both."
    )
    yield Finding("warning", "mps-double-mask", message)


def container_advice(
    mapping: CudaMapping,
    machine: Sequence[CudaDevice],
    reached: Sequence[CudaDevice] | None,
    where: str,
) -> Iterator[Finding]:
    """Yield advice on a value that counts as the machine does, though the place (`where`) has fewer
    GPUs (`reached`). If it has none, no other value helps."""
    stop = mapping.stopped_at
    if stop is None or mapping.reason != "out_of_range" or not reached:
        return
    number = stop.text.strip()
    if number not in {str(device.index) for device in machine}:
        return
    names = ", ".join(device.label for device in reached)
    message = f"GPU {number} of the machine is not in {where}, which has {names}, from 0."
    if number in {str(device.index) for device in reached}:
        message = (
            f"GPU {number} of the machine has another number in {where}, where GPUs count from 0."
            " Use a UUID."
        )
    yield Finding("warning", "container-index", message)
