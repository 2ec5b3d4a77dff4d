"""How lines get to the terminal: by the compositor that sends only changed cells, if supported."""

from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any

import textual.screen
from rich.style import Style
from textual.app import App
from textual.dom import DOMNode
from textual.geometry import Region
from textual.widget import Widget

from gputop.tui.terminal.compatibility import is_supported


def install() -> None:
    """Let screens that are made from now on send only the cells that differ."""
    if compositor := _compositor():
        textual.screen.Compositor = compositor.DiffCompositor  # type: ignore[attr-defined]


def repaint_all(app: App[Any]) -> None:
    """Draw every line again, for a terminal that other programs wrote to."""
    if compositor := _compositor():
        compositor.reset()
    app.screen.refresh()


def is_taken(app: App[Any]) -> bool:
    """Return whether the terminal has taken all that was drawn, as far as that can be known."""
    compositor = _compositor()
    return compositor is None or not compositor.backlog(app)


def repaint(widget: Widget, lines: Collection[Region]) -> None:
    """Have these regions of a widget drawn, by the shortest way."""
    compositor = _compositor()
    if compositor is None or not compositor.mark(widget, lines):
        widget.refresh(*lines)


def components(classes: Iterable[str]) -> set[str]:
    """Return the component classes that Textual computes for every widget each time that it gets or
    loses the focus: none if `component_style` computes those that are drawn."""
    return set() if is_supported() else set(classes)


def component_style(widget: Widget, component: str) -> Style:
    if not is_supported():
        return widget.get_component_rich_style(component)
    node = DOMNode(classes=component)
    node._attach(widget)
    widget.app.stylesheet.apply(node)
    return node.rich_style


def _compositor() -> ModuleType | None:
    """Return the module that imports private names of Textual; None if they do not fit."""
    if not is_supported():
        return None
    from gputop.tui.terminal import compositor

    return compositor
