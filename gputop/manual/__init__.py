"""The user's manual: its pages as blocks or plain text, and a search for a word.

The pages are Markdown, which people also read where the source is hosted. They use only headings,
paragraphs, lists, fenced code, tables, and pictures and comments, both of which are dropped here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from gputop.errors import GputopError

FOLDER = Path(__file__).parent
TOPICS = {
    "start": "install it, read the screen, the first things to do",
    "screen": "what the columns, the words and the colours mean",
    "keys": "every key, and those of htop, nvitop and less beside them",
    "filter": "show the processes that you mean",
    "free": "find free GPUs, wait for them, see how they are connected",
    "wait": "be told when a process ends or a GPU is free",
    "reserve": "run a program on GPUs that nobody else is given",
    "mapping": "which GPU is cuda:0, on the screen and with gputop map",
    "killing": "stop processes, on the screen and with gputop kill",
    "fleet": "many machines over ssh: names, groups, logins",
    "cluster": "thousands of machines that a Prometheus server knows",
    "browser": "the screen in a browser, to look at",
    "recording": "write down what happens, and read it later",
    "health": "what is wrong with a GPU, a driver or an installation",
    "line": "one line for tmux, starship, waybar and other status bars",
    "json": "text and JSON for scripts, with every field",
    "python": "import gputop: choose GPUs, take snapshots, watch, in Python",
    "metrics": "every value of a GPU and a process: label, field, unit",
    "prometheus": "metrics for Prometheus, alerts, a dashboard, dcgm-exporter's names",
    "site": "a cluster: from pipx install to metrics, alerts and reports",
    "settings": "the settings file, variables, themes, other keys",
    "faq": "colours, containers, Slurm, WSL, tmux, root, cost",
    "bench": "what gputop costs, and what other monitors do",
    "security": "what gputop runs, connects to, opens and follows",
    "examples": "every line of five articles on CUDA_VISIBLE_DEVICES, explained",
}
"""Every page in reading order, with its subject."""
COMMANDS = {
    "config": "settings",
    "doctor": "health",
    "export": "prometheus",
    "help": "start",
    "kill": "killing",
    "map": "mapping",
    "record": "recording",
    "replay": "recording",
    "serve": "browser",
    "run": "reserve",
    "topo": "free",
    "usage": "recording",
}
"""The page of each command whose page has another name."""

_NARROWEST = 20
"""Characters to which a table's column may shrink so that the table fits."""
_TICKS = re.compile(r"`([^`]+)`")
_CODE = re.compile(r"(`[^`]+`)")
_EMPHASIS = re.compile(r"\*\*|(?<![\\*])\*(\w[^*]*)\*")
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_ITEM = re.compile(r"(?:-|\d+\.) ")
_PART = re.compile(r"```(?s:.*?)^```$|.*\S.*(?:\n.*\S.*)*", re.M)
"""Fenced code, or the lines up to an empty one."""


class Block(NamedTuple):
    """A part of a page."""

    kind: Literal["heading", "paragraph", "item", "code", "table"]
    text: str
    """The text without its marks, but a heading keeps its `#`s, and an item its mark."""
    rows: tuple[tuple[str, ...], ...] = ()
    """The rows of a table, its headings first."""


def page(topic: str) -> str:
    """Return the Markdown of a page, without pictures and comments. GputopError."""
    try:
        text = (FOLDER / f"{topic}.md").read_text(encoding="utf-8")
    except OSError as error:
        raise GputopError(f"cannot read the manual: {error}; install gputop again") from None
    return re.sub(r"^(?:<!--.*?-->|!\[.*\]\(.*\))\n+", "", text, flags=re.M)


def blocks(markdown: str) -> Iterator[Block]:
    for part in _PART.findall(markdown):
        lines = part.splitlines()
        if part.startswith("```"):
            yield Block("code", "\n".join(lines[1:-1]))
        elif part.startswith("#"):
            yield Block("heading", lines[0])
        elif part.startswith("|"):
            rows = [_cells(line) for line in lines]
            yield Block("table", "", (rows[0], *rows[2:]))
        elif _ITEM.match(part):
            items = re.split(rf"\n(?={_ITEM.pattern})", part)
            yield from (Block("item", re.sub(r"\n\s*", " ", item)) for item in items)
        else:
            yield Block("paragraph", " ".join(lines))


def _cells(line: str) -> tuple[str, ...]:
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return tuple(cell.strip().replace(r"\|", "|") for cell in cells)


def inline(text: str) -> str:
    """Return text without the marks of links and emphasis; code keeps its ticks."""
    parts = _CODE.split(_LINK.sub(_target, text))
    parts[::2] = [_EMPHASIS.sub(r"\1", part).replace("\\*", "*") for part in parts[::2]]
    return "".join(parts)


def _target(link: re.Match[str]) -> str:
    """Return the text of a link, and where it leads: another page or an address."""
    text, target = link.groups()
    name = target.partition("#")[0].removesuffix(".md")
    if target.startswith("http"):
        return f"{text} ({target})"
    return f"{text} (gputop help {name})" if name in TOPICS and name != text else text


def plain(markdown: str, width: int = 80) -> str:
    """Return a page as text of at most `width` columns; code may be wider."""
    return "\n".join(line for _, line in laid_out(markdown, width)) + "\n"


def laid_out(markdown: str, width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of a page, each with the kind of its block; one between blocks is empty."""
    before = ""
    for block in blocks(markdown):
        if before and not before == block.kind == "item":
            yield "", ""
        yield from ((block.kind, line) for line in _plain(block, width))
        before = block.kind


def _plain(block: Block, width: int) -> Iterator[str]:
    if block.kind == "heading":
        marks, _, title = block.text.partition(" ")
        yield inline(title).upper() if len(marks) == 1 else inline(title)
    elif block.kind == "code":
        yield from textwrap.indent(block.text, "    ").splitlines()
    elif block.kind == "table":
        yield from _table(block.rows, width)
    else:
        mark = _ITEM.match(block.text) if block.kind == "item" else None
        after = " " * (mark.end() if mark else 0)
        yield from _wrapped(inline(block.text), width, rest=after)


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _table(rows: tuple[tuple[str, ...], ...], width: int) -> Iterator[str]:
    """Yield the lines of a table in columns if they fit, otherwise a paragraph for each row."""
    cells = [[inline(cell) for cell in row] for row in rows]
    for row in cells:
        row[0] = _TICKS.sub(r"\1", row[0])
    has_heads = any(cells[0][1:])
    widths = _fitted(list(zip(*cells, strict=True)), width - 2)
    if widths is None:
        for row in cells[1:]:
            yield from _as_paragraph(cells[0], row, width)
        return
    for row in cells if has_heads else cells[1:]:
        columns = [_wrapped(cell, room) for cell, room in zip(row, widths, strict=True)]
        for parts in zip_longest(*columns, fillvalue=""):
            line = "  ".join(part.ljust(room) for part, room in zip(parts, widths, strict=True))
            yield f"  {line}".rstrip()


def _fitted(columns: list[tuple[str, ...]], room: int) -> list[int] | None:
    """Return the widths of columns; the widest are narrowed to fit, None if they cannot fit.

    A heading is wrapped before the cells below it are.
    """
    least = [max(len(word) for cell in column for word in cell.split() or [""])
             for column in columns]  # fmt: skip
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) + 2 * len(widths[1:]) > room:
        below = (max(map(len, cells), default=0) for _, *cells in columns)
        widths = list(map(max, least, below))
    while sum(widths) + 2 * len(widths[1:]) > room:
        left = [k for k, width in enumerate(widths) if width > max(least[k], _NARROWEST)]
        if not left:
            return None
        widths[max(left, key=widths.__getitem__)] -= 1
    return widths


def _as_paragraph(heads: list[str], row: list[str], width: int) -> Iterator[str]:
    yield from _wrapped(row[0], width, "  ", "  ")
    for head, cell in zip(heads[1:], row[1:], strict=True):
        named = f"{head}: {cell}" if len(row) > 2 else cell
        yield from _wrapped(named, width, "      ", "      ") if cell else ()


def table_below(topic: str, heading: str) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table of two columns below a heading of a page, without ticks."""
    below = ""
    for block in blocks(page(topic)):
        if block.kind == "heading":
            below = block.text.lstrip("# ")
        elif block.kind == "table" and below == heading:
            yield from ((word.replace("`", ""), text) for word, text in block.rows[1:])


def found(word: str, width: int = 80) -> Iterator[str]:
    """Yield the lines of the places that have a word, whatever its case, below a line for each
    heading that has some."""
    wanted = word.casefold()
    for topic in TOPICS:
        heading, before = "", None
        for block in blocks(page(topic)):
            if block.kind == "heading":
                heading = inline(block.text.lstrip("# "))
            for text in _searched(block):
                if wanted in text.casefold():
                    if heading != before:
                        yield f"gputop help {topic}: {heading}"
                    before = heading
                    yield from _wrapped(text, width, "    ", "      ")


def _searched(block: Block) -> list[str]:
    """Return the texts of a block that are searched separately: lines of code, table rows."""
    if block.kind == "table":
        return ["  ".join(filter(None, map(inline, row))) for row in block.rows[1:]]
    if block.kind == "code":
        return [line.strip() for line in block.text.splitlines()]
    return [inline(block.text.lstrip("# "))]
