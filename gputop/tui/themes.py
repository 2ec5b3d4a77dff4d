"""Colours: what the roles look like in each theme.

A role says what a piece of text is for. Quiet things have no colour of their own, and the alarm
colour is kept for what needs a person.
"""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

USER_COLOURS = 6

ROLES = (
    "quiet",
    "heading",
    "good",
    "notice",
    "alarm",
    "memory",
    "load",
    "track",
    "key",
    *(f"user{number}" for number in range(USER_COLOURS)),
)


def _variables(*colours: str) -> dict[str, str]:
    return {f"gp-{role}": colour for role, colour in zip(ROLES, colours, strict=True)}


# quiet heading good notice alarm memory load track key, then users
_ANSI_DARK = _variables(
    "ansi_default", "ansi_default", "ansi_green", "ansi_yellow", "ansi_red", "ansi_cyan",
    "ansi_green", "ansi_bright_black", "ansi_cyan",
    "ansi_cyan", "ansi_magenta", "ansi_blue", "ansi_bright_cyan", "ansi_bright_magenta",
    "ansi_bright_blue",
)  # fmt: skip
_ANSI_LIGHT = _variables(
    "ansi_default", "ansi_default", "ansi_green", "ansi_magenta", "ansi_red", "ansi_blue",
    "ansi_green", "ansi_bright_black", "ansi_blue",
    "ansi_blue", "ansi_magenta", "ansi_cyan", "ansi_bright_blue", "ansi_bright_magenta",
    "ansi_green",
)  # fmt: skip
_DARK = _variables(
    "#8a8f98", "#c5cad3", "#7ec699", "#e5b567", "#f0716a", "#62aeef", "#7ec699", "#3a3f4a",
    "#62aeef",
    "#62aeef", "#c792ea", "#56c8c8", "#e8a87c", "#a5b4fc", "#d4a5d4",
)  # fmt: skip
_LIGHT = _variables(
    "#6b7078", "#33373d", "#2e7d4f", "#9a6700", "#c0392b", "#1f6fb2", "#2e7d4f", "#d0d4da",
    "#1f6fb2",
    "#1f6fb2", "#8e44ad", "#0b7a75", "#a0522d", "#4a4fb8", "#8a3b75",
)  # fmt: skip
# Okabe and Ito's colours, which people who see red and green alike tell apart.
_COLORBLIND = _variables(
    "#8a8f98", "#c5cad3", "#56b4e9", "#f0e442", "#ff8c42", "#0072b2", "#56b4e9", "#3a3f4a",
    "#56b4e9",
    "#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#009e73", "#b8b8b8",
)  # fmt: skip


def _ansi(name: str, variables: dict[str, str]) -> Theme:
    """Textual's theme of the terminal's own colours, with our roles."""
    theme = BUILTIN_THEMES[name]
    return Theme(
        **{
            **{field: getattr(theme, field) for field in Theme.__dataclass_fields__},
            "variables": {**theme.variables, **variables},
        }
    )


THEMES = (
    _ansi("ansi-dark", _ANSI_DARK),
    _ansi("ansi-light", _ANSI_LIGHT),
    Theme(
        name="dark",
        primary="#62aeef",
        foreground="#e3e6eb",
        background="#16181d",
        surface="#1d2026",
        panel="#252931",
        error="#f0716a",
        warning="#e5b567",
        success="#7ec699",
        variables=_DARK,
    ),
    Theme(
        name="light",
        primary="#1f6fb2",
        foreground="#1f2328",
        background="#fbfcfd",
        surface="#f1f3f5",
        panel="#e6e9ed",
        error="#c0392b",
        warning="#9a6700",
        success="#2e7d4f",
        dark=False,
        variables=_LIGHT,
    ),
    Theme(
        name="colorblind",
        primary="#56b4e9",
        foreground="#e3e6eb",
        background="#16181d",
        surface="#1d2026",
        panel="#252931",
        error="#ff8c42",
        warning="#f0e442",
        success="#56b4e9",
        variables=_COLORBLIND,
    ),
)

DEFAULTS = _ANSI_DARK
"""Values of the variables in a theme that is not ours."""


_seen: dict[str, str] = {}


def user_role(user: str) -> str:
    """The role of a user's colour: the same wherever the name stands, as long as gputop runs.

    Colours go to users in the order in which they turn up, so that the first few all differ.
    """
    return _seen.setdefault(user, f"user{len(_seen) % USER_COLOURS}")
