"""Makes the man page and the shell completions, when a wheel is built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SHELLS = {
    "bash": "share/bash-completion/completions/gputop",
    "zsh": "share/zsh/site-functions/_gputop",
}


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Files that lie beside the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install has no files of its own."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        import shtab
        from argparse_manpage.manpage import Manpage  # type: ignore[import-not-found]

        from gputop import __version__
        from gputop.parser import whole_parser

        made = Path(self.directory, "share")
        made.mkdir(parents=True, exist_ok=True)
        parser = whole_parser()
        texts = {shell: shtab.complete(parser, shell=shell) for shell in _SHELLS}
        for shell, text in texts.items():
            path = made / f"gputop.{shell}"
            path.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(path)] = _SHELLS[shell]
        page = Manpage(parser)
        page.manual, page.source = "User Commands", f"gputop {__version__}"
        page.description = "who is on which GPU, and which GPU is cuda:0"
        path = made / "gputop.1"
        path.write_text(str(page), encoding="utf-8")
        build_data["shared_data"][str(path)] = "share/man/man1/gputop.1"
