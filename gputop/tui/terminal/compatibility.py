"""Whether this Textual is one whose private names gputop was written for.

All that is private to Textual is used in this folder, and nothing of it unless `fits()`. Without it
gputop draws as Textual does, for ten times the bytes: the keys are read by Textual, so some that
are typed at once may miss a dialog that they open, and a terminal that takes no output may stop
the screen.
"""

import inspect
import re
from functools import cache
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from typing import Any

OLDEST = (8, 2, 5)
NEWER = (9,)
"""The first version that is not known."""

_DRIVER = "textual.drivers.linux_driver:LinuxDriver"
_PARAMETERS = {
    "textual._compositor:Compositor.render_update": "self full screen_stack simplify",
    "textual._compositor:Compositor._render_chops": "self crop is_rendered_line",
    "textual._compositor:CompositorUpdate.render_segments": "self console",
    "textual._xterm_parser:XTermParser.feed": "self data",
    "textual._xterm_parser:XTermParser.tick": "self",
    "textual.app:App._check_bindings": "self key priority",
    "textual.app:App._display": "self screen renderable",
    "textual.app:App._fatal_error": "self",
    "textual.dom:DOMNode._attach": "self parent",
    "textual.drivers._writer_thread:WriterThread.write": "self text",
    "textual.strip:Strip.render_ansi": "style color_system",
    f"{_DRIVER}._disable_mouse_support": "self",
    f"{_DRIVER}._enable_mouse_pixels": "self",
    f"{_DRIVER}._enable_mouse_support": "self",
    f"{_DRIVER}._get_terminal_size": "self",
    f"{_DRIVER}.process_message": "self message",
    f"{_DRIVER}.run_input_thread": "self",
    f"{_DRIVER}.send_message": "self message",
}
"""Of what is called and what is replaced."""
_ATTRIBUTES = {
    "textual._compositor:Compositor": "_dirty_regions size visible_widgets root",
    "textual._context": "visible_screen_stack",
    "textual._xterm_parser:XTermParser": "_timeout_time mouse_pixels",
    "textual.app:App": "_batch_count _driver _exception",
    "textual.drivers._writer_thread:WriterThread": "_queue",
    "textual.message_pump:MessagePump": "_message_queue _parent",
    "textual.screen": "Compositor",
    "textual.screen:Screen": "_compositor _dirty_widgets _update_timer",
    "textual.widget:Widget": "_layout_required _repaint_regions _repaint_required",
    _DRIVER: "_app _file _mouse _writer_thread",
}


@cache
def fits() -> bool:
    """Return whether its version is known, and the private names are there as they are used."""
    try:
        return (
            OLDEST <= _release(version("textual")) < NEWER
            and all(_takes(name, words.split()) for name, words in _PARAMETERS.items())
            and all(_has(name, words.split()) for name, words in _ATTRIBUTES.items())
        )
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version up to its first part that is none: 8.3.0rc1 is (8, 3, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _takes(name: str, parameters: list[str]) -> bool:
    return list(inspect.signature(_named(name)).parameters) == parameters


def _has(name: str, attributes: list[str]) -> bool:
    """Whether a module or class has them; what an object gets is named where it is made."""
    owner = _named(name)
    made = {word for base in getattr(owner, "__mro__", ()) for word in _names_in(base.__init__)}
    return all(hasattr(owner, word) or word in made for word in attributes)


def _names_in(function: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_names", ())
    return names


def _named(name: str) -> Any:
    module, _, dotted = name.partition(":")
    return attrgetter(dotted)(import_module(module)) if dotted else import_module(module)
