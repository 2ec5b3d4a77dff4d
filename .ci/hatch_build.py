"""Makes the man page and the shell completions, when a wheel is built."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SHELLS = {
    "bash": "share/bash-completion/completions/gputop",
    "zsh": "share/zsh/site-functions/_gputop",
    "fish": "share/fish/vendor_completions.d/gputop.fish",
}
_DESCRIPTION = (("start", "", "Install"), ("start", "The first look", "The first things"))
_SECTIONS = {
    "keys": ("keys", "", "Beside"),
    "filter": ("filter", "", ""),
    "files": ("settings", "Files", "Completion"),
    "exit status": ("json", "Exit status", "The frame"),
}
"""Of the man page beyond what argparse knows: the page of the manual, and the headings from which
on and before which it is taken; none: the beginning, the end."""


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Files that lie beside the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install has no files of its own."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from argparse_manpage.manpage import Manpage  # type: ignore[import-not-found]

        from gputop.completion import script
        from gputop.parser import make_parser
        from gputop.version import __version__

        made = Path(self.directory, "share")
        made.mkdir(parents=True, exist_ok=True)
        texts = {shell: script(make_parser(), shell) for shell in _SHELLS}
        for shell, text in texts.items():
            path = made / f"gputop.{shell}"
            path.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(path)] = _SHELLS[shell]
        parser = make_parser()
        parser.description = ""
        page = Manpage(parser)
        page.manual, page.source = "User Commands", f"gputop {__version__}"
        page.description = "a terminal monitor for NVIDIA GPUs"
        lines = (line for part in _DESCRIPTION for line in _roff(*part))
        page.add_section("description", "=", "\n".join([*lines, ""]))
        for name, (topic, first, end) in _SECTIONS.items():
            page.add_section(name, ">", "\n".join(_roff(topic, first, end)))
        path = made / "gputop.1"
        path.write_text(str(page), encoding="utf-8")
        build_data["shared_data"][str(path)] = "share/man/man1/gputop.1"


def _roff(topic: str, first: str, end: str) -> Iterator[str]:
    """Return a part of a page of the manual as man(7) has it."""
    from gputop.manual import blocks, page

    inside = False
    for block in blocks(page(topic)):
        title = block.text.lstrip("# ") if block.kind == "heading" else ""
        if inside and end and title.startswith(end):
            return
        if inside:
            yield from _roff_block(block)
        inside = inside or (bool(title) and title.startswith(first))
    if end:
        raise ValueError(f"{topic}.md has no part from {first!r} to {end!r}")


def _roff_block(block: Any) -> Iterator[str]:
    if block.kind == "heading":
        yield f".SS {_roff_text(block.text.lstrip('# '))}"
    elif block.kind == "code":
        yield from (".PP", ".nf", *map(_roff_text, block.text.splitlines()), ".fi")
    elif block.kind == "table":
        for first, *rest in block.rows[1:]:
            more = [f"({cell})" for cell in rest[1:] if cell]
            yield from (".TP", _roff_text(first) or r"\&", _roff_text(" ".join([rest[0], *more])))
    else:
        yield from (".PP" if block.kind == "paragraph" else ".IP \\(bu 2",
                    _roff_text(re.sub(r"^(?:-|\d+\.) ", "", block.text)))  # fmt: skip


def _roff_text(text: str) -> str:
    """Return a line: code in bold, and nothing that begins a request."""
    from gputop.manual import inline

    text = inline(text).replace("\\", r"\e").replace("-", r"\-")
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    text = re.sub(r"[^\x00-\x7f]", lambda other: f"\\[u{ord(other[0]):04X}]", text)
    return rf"\&{text}" if text[:1] in (".", "'") else text
