"""`gputop help`: shows a page of the manual, or finds a word in it."""

from __future__ import annotations

import argparse
import os
import sys

from gputop.commands.shared.options import LOOKS
from gputop.errors import GputopError, UsageError
from gputop.manual import COMMANDS, TOPICS, found, page, plain
from gputop.output import complain, write
from gputop.settings import Session, session_of
from gputop.tui.glyphs import UNICODE, choose
from gputop.tui.terminal.capabilities import initial_environ, unfit_reason

IN_ASCII = str.maketrans(
    {"↑": "up", "↓": "down", "←": "left", "→": "right", "–": "-", "·": ".", "»": ">>", "▸": ">",
     "×": "x", "≈": "~", "°": "", "�": "?"}
)  # fmt: skip
DESCRIPTION = "Show a page of the manual: on a terminal to leaf through, else as text."
_TOPICS = "\n".join(f"  {topic:<10} {about}" for topic, about in TOPICS.items())
EPILOG = f"""\
topics:
{_TOPICS}

examples:
  gputop help                  how to begin
  gputop help keys             every key
  gputop help -s 'host PID'    where the manual has these words
  gputop help filter | less    as text

exit status: 0 done, 1 the manual has no such word, 2 there is no such topic
"""
TAKES = LOOKS
APART = (("-s", "TOPIC"),)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="?", metavar="TOPIC", choices=(*TOPICS, *COMMANDS),
        help="a page (default: start), or a command: the page that is about it",
    )  # fmt: skip
    parser.add_argument("-s", "--search", metavar="WORD", help="print where the manual has a word")


def run(options: argparse.Namespace) -> int:
    settings = _settings(options)
    encoding = getattr(sys.stdout, "encoding", None)
    has_unicode = choose(initial_environ(), encoding, settings.glyphs) is UNICODE
    topic = COMMANDS.get(options.topic, options.topic) or next(iter(TOPICS))
    if options.search is not None:
        text = _search_results(options.search)
    elif unfit_reason(os.environ) is None and has_unicode:
        from gputop.tui.manual import run as show

        return show(topic, settings)
    else:
        text = plain(page(topic))
    # An arrow is a key here, and the `?` that it would become is another key.
    write(text if has_unicode else text.translate(IN_ASCII))
    return 0


def _settings(options: argparse.Namespace) -> Session:
    """Return the settings, or the defaults if they are wrong: the manual explains them."""
    try:
        return session_of(options)
    except UsageError as error:
        complain(f"{error}; the defaults are used")
        return Session()


def _search_results(word: str) -> str:
    """Return the places that have a word. GputopError if none."""
    lines = list(found(word))
    if not lines:
        raise GputopError(f"the manual has no {word!r}; its topics: {', '.join(TOPICS)}")
    return "\n".join(lines) + "\n"
