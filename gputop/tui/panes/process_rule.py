"""The rule above the processes: which are shown, in which order, and how many."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.machine.text import plural
from gputop.model.metrics.process import COLUMNS
from gputop.model.processes.process_listing import ProcessListing
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import cut
from gputop.tui.panes.lines import Piece, spread


def rule(
    listing: ProcessListing, span: tuple[int, int, int], width: int, glyphs: GlyphSet,
    above: str = "", is_active: bool = False,
) -> list[Piece]:  # fmt: skip
    """Return the rule in `width` cells.

    `span`: the first and the last row in sight, counted from 1, and the number of rows; `above`:
    what it says of the pane above it; `is_active`: whether keys go to the processes.
    """
    line, most = glyphs.rule, max(16, width // 3 + 8)
    title: Piece = ("Processes", "heading" if is_active else "quiet")
    left: list[Piece] = [(f"{line} ", "track")]
    for text, role in ((above, "notice"), title, *_choices(listing)):
        if text:
            left.append((f"{cut(glyphs.text(text), most, glyphs.ellipsis)} ", role))
            left.append((f"{line * 2} ", "track"))
    label = COLUMNS[listing.order[0]].label
    order = f"{label} {sort_mark(listing, glyphs)}".rstrip()
    right: list[Piece] = [
        (f" by {order} ", "quiet"),
        (line * 2, "track"),
        (f" {count_words(listing, span)} ", "quiet"),
        (line, "track"),
    ]
    return spread(left[:-1], right, width, (line, "track"))


def _choices(listing: ProcessListing) -> Iterator[Piece]:
    """Yield what the user has chosen: tags, a view, a filter; empty texts for none."""
    tagged = len(listing.tagged)
    yield f"{tagged} tagged" if tagged else "", "notice"
    yield listing.view.words(listing.frame.gpus if listing.frame else ()), "notice"
    yield listing.filter and f"filter: {listing.filter}", "notice"


def count_words(listing: ProcessListing, span: tuple[int, int, int]) -> str:
    """Return how many processes there are, how many of them are shown if not all, and which rows
    are in sight if not all."""
    first, last, rows = span
    total, fitting = len(listing.every), listing.fitting
    whole = fitting == total and not listing.filter
    count = f"{total}" if whole else f"{fitting} of {total}"
    if last - first + 1 >= rows:
        return count
    if count == f"{rows}":
        return f"{first}-{last} of {rows}"
    return f"rows {first}-{last} of {rows}, {count} {plural(total, 'process')}"


def sort_mark(listing: ProcessListing, glyphs: GlyphSet) -> str:
    """Return the sign of the direction of sorting; empty for the usual order, by GPU or host."""
    if listing.order in (("gpu", False), ("host", False)):
        return ""
    return glyphs.descending if listing.order[1] else glyphs.ascending
