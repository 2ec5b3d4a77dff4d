"""`python -m tests.manual`: write the tables of the manual that are made from the code again.

A page has each between `<!-- generated: NAME -->` and `<!-- end -->`. What a field of the JSON
means is the help of its metric and the docstring below it in the model.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from textual.app import App
from textual.binding import Binding, BindingType
from textual.keys import key_to_character
from textual.screen import Screen

from gputop.export.line import FIELDS as LINE_FIELDS
from gputop.manual import FOLDER, TOPICS
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.environment import (
    AgentSurroundings,
    CudaContext,
    Environ,
    RelatedProcess,
)
from gputop.model.machine.frame import Frame, Host, PciCard, Problem, Process
from gputop.model.machine.gpu import DeviceHolder, Gpu, MigDevice
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.sections import Xid
from gputop.model.machine.topology import Topology
from gputop.model.metrics.gpu import SECTIONS
from gputop.model.metrics.process import COLUMNS, NUMBERS_ON_GPU
from gputop.settings import VARIABLES, Settings, described
from gputop.tui.app import GputopApp
from gputop.tui.glyphs import UNICODE
from gputop.tui.keys import HOSTS_BINDINGS, REPLAY_BINDINGS
from gputop.tui.main import MainScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.health import HealthScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.pages.screen_help import sections

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.S)
_OF_CODE = re.compile(r"\s*(?:Names as in|See|As) `model\.[^`]*`[^.]*\.|; see `model\.[^`]*`")
_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "frame": Frame, "host": Host, "surroundings": AgentSurroundings, "problem": Problem,
    "card": PciCard,
    "topology": Topology, "process": Process, "origin": Origin, "container": Container,
    "cuda_context": CudaContext, "environ": Environ, "related": RelatedProcess,
    "mig": MigDevice, "holder": DeviceHolder, "xid": Xid,
}  # fmt: skip
_UNITS = {"0..1": "0 to 1", "Celsius": "°C"}


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return Markdown; a bar in a cell is escaped."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines
    )


def docstrings(struct: type) -> dict[str, str]:
    """Return what stands below the fields of a Struct, for a reader of its JSON."""
    base = struct.__base__
    below = {} if base in (None, msgspec.Struct) else docstrings(base)
    (definition,) = ast.parse(dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            words = _OF_CODE.sub("", " ".join(str(text.value.value).split()))
            below[field.target.id] = re.sub(r"\bNone\b", "`null`", words).strip()  # type: ignore[attr-defined]
    return below


def kind(annotation: Any) -> str:
    """Return the unit of a field, or else its type in JSON."""
    if get_origin(annotation) is Annotated:
        unit = get_args(annotation)[1].name
        return _UNITS.get(unit, unit) or kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (kind_ for kind_ in get_args(annotation) if kind_ is not type(None))
        return kind(annotation)
    if get_origin(annotation) is Literal:
        return "text"
    names = {int: "number", float: "number", str: "text", bool: "true, false", tuple: "list"}
    return names.get(get_origin(annotation) or annotation, "object")


def meaning(*texts: str) -> str:
    """Return sentences; the last has no full stop, as in the help."""
    ends = [text if text.endswith("...") else text.removesuffix(".") for text in texts if text]
    return ". ".join(map(_sentence, ends))


def _sentence(text: str) -> str:
    """Begin with a capital letter, unless the first word is code or a name."""
    first = text.split()[0]
    return text if first == "gputop" or not first.isalpha() else text[:1].upper() + text[1:]


def fields(struct: type[msgspec.Struct], left_out: Iterable[str] = ()) -> str:
    """Return the fields of a Struct, and what each means."""
    below, hints = docstrings(struct), get_type_hints(struct, include_extras=True)
    rows = []
    for name in struct.__struct_fields__:
        if name not in left_out:
            helps = [get_args(hints[name])[3]] if get_origin(hints[name]) is Annotated else []
            unit, text = kind(hints[name]), below.get(name, "")
            if struct is Process and text:
                helps = []  # they are of what a column shows
            rows.append([f"`{name}`", unit, meaning(*helps, text)])
    return table(("field", "unit or type", "meaning"), rows)


def gpu_fields() -> str:
    """Return the metrics of a GPU under the headings of its page."""
    below = {**docstrings(Gpu), **_below_sections()}
    parts = []
    for heading, metrics in SECTIONS.items():
        rows = [
            [f"`{metric.id}`", metric.label, _UNITS.get(metric.unit, metric.unit),
             meaning(metric.help, below.get(metric.id, ""))]
            for metric in metrics
        ]  # fmt: skip
        parts.append(f"### {heading}\n\n" + table(("field", "label", "unit", "meaning"), rows))
    return "\n".join(parts)


def _sections() -> dict[str, type[msgspec.Struct]]:
    hints = get_type_hints(Gpu)
    kinds = {name: get_args(hint)[0] for name, hint in hints.items() if get_args(hint)}
    return {
        name: kind_
        for name, kind_ in kinds.items()
        if get_origin(hints[name]) is not tuple
        and isinstance(kind_, type)
        and issubclass(kind_, msgspec.Struct)
    }


def _below_sections() -> dict[str, str]:
    sections = _sections().items()
    return {f"{id_}.{name}": text for id_, struct in sections
            for name, text in docstrings(struct).items()}  # fmt: skip


def prometheus() -> str:
    """Return what Prometheus calls the metrics of a GPU."""
    rows = [[f"`{metric.prometheus}`", f"`{metric.id}`", meaning(metric.help)]
            for metrics in SECTIONS.values() for metric in metrics
            if metric.prometheus is not None and metric.id != "stale_for"]  # fmt: skip
    return table(("metric", "field of the JSON", "meaning"), rows)


def prometheus_processes() -> str:
    """Return what Prometheus calls the numbers of a process on a GPU."""
    below = docstrings(Process)
    rows = [[f"`{metric.prometheus}`", f"`{id_}`", meaning(below.get(id_) or metric.help)]
            for id_, metric in NUMBERS_ON_GPU.items()]  # fmt: skip
    return table(("metric", "field of the JSON", "meaning"), rows)


def other_gpu_fields() -> str:
    """Return the fields of a GPU, and of its sections, that are shown nowhere by themselves."""
    shown = {metric.id for metrics in SECTIONS.values() for metric in metrics}
    below = {**docstrings(Gpu), **_below_sections()}
    hints = dict(get_type_hints(Gpu, include_extras=True))
    for id_, struct in _sections().items():
        hints.pop(id_)
        inner = get_type_hints(struct, include_extras=True).items()
        hints.update({f"{id_}.{name}": hint for name, hint in inner})
    rows = [[f"`{name}`", kind(hint), meaning(below.get(name, ""))]
            for name, hint in hints.items() if name not in shown]  # fmt: skip
    return table(("field", "unit or type", "meaning"), rows)


def columns() -> str:
    """Return the columns of the process table."""
    rows = [[f"`{metric.id}`", metric.label, metric.help] for metric in COLUMNS.values()]
    return table(("id", "column", "meaning"), rows)


def settings() -> str:
    """Return every setting with its default."""
    return table(("setting", "default", "meaning"), _settings(Settings))


def _settings(kind_: type[msgspec.Struct], section: str = "") -> Iterator[list[str]]:
    for name in kind_.__struct_fields__:
        value = getattr(kind_(), name)
        if isinstance(value, msgspec.Struct):
            yield from _settings(type(value), f"{name}.")
            continue
        variable = f"; {VARIABLES[name]}" if name in VARIABLES else ""
        default = "" if value is None else json.dumps(value)
        code = f"`{default}`" if default not in ("", "{}", "[]") else ""
        yield [f"`{section}{name}`", code, described(kind_, name) + variable]


def topics(folder: str = "") -> str:
    """Return the pages with what each is about."""
    rows = ([f"[{topic}]({folder}{topic}.md)", about] for topic, about in TOPICS.items())
    return table(("page", "what it is about"), rows)


def keys(bindings: Iterable[BindingType]) -> str:
    """Return what keys do; those that do the same are in one row."""
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for binding in bindings:
        assert isinstance(binding, Binding)
        text = binding.tooltip or binding.description
        names, ids = rows.setdefault(text, ([], []))
        names.extend(f"`{key_name(key)}`" for key in binding.key.split(","))
        ids.append(f"`{binding.id}`")
    return table(
        ("key", "what it does", "name in the settings"),
        ([_listed(names), text, _listed(ids)] for text, (names, ids) in rows.items()),
    )


def _listed(names: list[str]) -> str:
    """Return names in a cell; the ten digits are shortened."""
    return re.sub(r"`(\w*\.?)0`(?: `\1[1-8]`){8} `\1(9)`", r"`\g<1>0` to `\g<1>9`", " ".join(names))


def keys_by_task(screen: type[Screen[Any]], app: type[App[Any]]) -> str:
    """Return what the keys of the main screen do, under a heading for each task."""
    groups: dict[str, list[BindingType]] = {}
    for binding in (*screen.BINDINGS, *app.BINDINGS):
        group = binding.group if isinstance(binding, Binding) else None
        groups.setdefault(group.description if group else "Screen", []).append(binding)
    return "\n".join(f"### {group}\n\n{keys(groups[group])}" for group in groups)


def key_name(key: str) -> str:
    """Name a key as people do."""
    *held, last = key.split("+")
    character = key_to_character(last) if len(last) > 1 else last
    names = {
        "slash": "/", "backslash": "\\", "plus": "+", "minus": "-", "backspace": "Backspace",
        "right": "→", "left": "←", "up": "↑", "down": "↓", "escape": "Esc", "pageup": "PgUp",
        "pagedown": "PgDn", "space": "Space",
    }  # fmt: skip
    name = names.get(last, character or last)
    return "-".join(part[0].upper() + part[1:] if held or part[1:] else part
                    for part in (*held, name))  # fmt: skip


def words(section: str) -> str:
    """Return what words of the screen mean, as its help has it."""
    found = [words for title, words in sections(UNICODE) if title.startswith(section)]
    assert len(found) == 1, f"the help has no section {section!r}"
    return table(("word", "meaning"), ([f"`{word}`", text] for word, text in found[0]))


GENERATED: dict[str, Callable[[], str]] = {
    **{name: lambda struct=struct: fields(struct) for name, struct in _STRUCTS.items()},  # type: ignore[misc]
    "gpu": gpu_fields,
    "gpu-other": other_gpu_fields,
    "prometheus": prometheus,
    "prometheus-processes": prometheus_processes,
    "columns": columns,
    "settings": settings,
    "keys-main": lambda: keys_by_task(MainScreen, GputopApp),
    "keys-replay": lambda: keys(REPLAY_BINDINGS),
    "keys-hosts": lambda: keys(HOSTS_BINDINGS),
    "keys-process": lambda: keys(ProcessScreen.BINDINGS),
    "keys-gpu": lambda: keys(GpuScreen.BINDINGS),
    "keys-graphs": lambda: keys(GraphScreen.BINDINGS),
    "keys-whole": lambda: keys(MappingScreen.BINDINGS),
    "keys-health": lambda: keys(HealthScreen.BINDINGS),
    "keys-problem": lambda: keys(ProblemScreen.BINDINGS),
    "keys-manual": lambda: keys(HelpScreen.BINDINGS),
    **{
        f"words-{section.split()[-1].lower()}": lambda section=section: words(section)  # type: ignore[misc]
        for section in ("Signs", "What a GPU is doing")
    },
    "words-free": lambda: words("Why a GPU is not free"),
    "topics": topics,
    "readme-topics": lambda: topics("gputop/manual/"),
    "line": lambda: table(
        ("field", "what it is"), ([f"`{name}`", field.help] for name, field in LINE_FIELDS.items())
    ),
    "throttle": lambda: table(
        ("word", "reason in JSON", "what it means"),
        ([each.word, f"`{name}`", each.meaning] for name, each in THROTTLE_REASONS.items()),
    ),
}
"""What stands in a block, by its name."""


def regenerated(text: str) -> str:
    """Return a page with its generated tables as they should be."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{GENERATED[block[2]]()}\n{block[3]}", text)


def names_in(text: str) -> list[str]:
    """Return the names of the tables of a page."""
    return [name for _, name, _ in _BLOCK.findall(text)]


def main() -> int:
    """Write the pages that differ, and name them."""
    for path in (README, *sorted(FOLDER.glob("*.md"))):
        before = path.read_text(encoding="utf-8")
        after = regenerated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
