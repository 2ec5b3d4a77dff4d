"""Whether this Textual has the private names that gputop was written for.

Private names of Textual are used in this folder alone, and only if `is_supported()`. Otherwise
gputop draws as Textual does, for ten times the bytes. Textual then reads the keys, so some that are
typed at once may miss a dialog that they open, and a terminal that takes no output may stop the
screen.
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
"""The parameters of what gputop calls and of what it replaces."""
_ATTRIBUTES = {
    "textual._compositor:Compositor": "_dirty_regions layers_visible root size visible_widgets",
    "textual._context": "visible_screen_stack",
    "textual._xterm_parser:XTermParser": "_timeout_time mouse_pixels",
    "textual.app:App": "_batch_count _driver _exception",
    "textual.drivers._writer_thread:WriterThread": "_queue",
    "textual.message_pump:MessagePump": "_message_queue _parent",
    "textual.screen": "Compositor",
    "textual.screen:Screen": "_compositor _dirty_widgets _update_timer",
    "textual.timer:Timer": "_skip",
    "textual.widget:Widget": "_layout_required _repaint_regions _repaint_required",
    _DRIVER: "_app _file _mouse _writer_thread",
}


@cache
def is_supported() -> bool:
    """Return whether Textual's version is known, and it has the private names that are used."""
    try:
        return (
            OLDEST <= _release(version("textual")) < NEWER
            and all(_takes(name, words.split()) for name, words in _PARAMETERS.items())
            and all(_has(name, words.split()) for name, words in _ATTRIBUTES.items())
        )
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: 8.3.0rc1 is (8, 3, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _takes(name: str, parameters: list[str]) -> bool:
    return list(inspect.signature(_named(name)).parameters) == parameters


def _has(name: str, attributes: list[str]) -> bool:
    """Return whether a module or class has attributes; those of objects are in its `__init__`."""
    owner = _named(name)
    made = {word for base in getattr(owner, "__mro__", ()) for word in _names_in(base.__init__)}
    return all(hasattr(owner, word) or word in made for word in attributes)


def _names_in(function: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_names", ())
    return names


def _named(name: str) -> Any:
    module, _, dotted = name.partition(":")
    return attrgetter(dotted)(import_module(module)) if dotted else import_module(module)
