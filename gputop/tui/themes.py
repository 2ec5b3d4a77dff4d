"""Colours: those of the roles in each theme, and those of users.

A role says what a piece of text is for. Quiet things have no colour of their own, green is for what
is free, and the alarm colour for what needs attention. Loads and users have neither of these two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from zlib import crc32

from textual.theme import BUILTIN_THEMES, Theme

from gputop.model.machine.finding import Level

USER_COLOURS = 8
USER_ROLES = tuple(f"user{number}" for number in range(USER_COLOURS))

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
    "light",
    "moderate",
    "heavy",
    *USER_ROLES,
)

LEVEL_ROLES: dict[Level | None, str] = {
    "error": "alarm", "warning": "notice", "info": "quiet", "ok": "good", None: "quiet"
}  # fmt: skip
"""The role of a finding's level; None: nothing was found."""

_STYLES = ("none", "underline", "bold", "bold underline")
"""What tells users apart where there are fewer colours than users."""


def _variables(colours: str, loads: str, users: str) -> dict[str, str]:
    """Return the variables of a theme. If it has fewer colours of users than there are roles, they
    come again in another text style."""
    few = users.split()
    numbers = range(USER_COLOURS)
    named = [*colours.split(), *loads.split(), *(few[n % len(few)] for n in numbers)]
    styles = {f"gp-user{n}-style": _STYLES[n // len(few)] for n in numbers}
    return {f"gp-{role}": colour for role, colour in zip(ROLES, named, strict=True)} | styles


# quiet heading good notice alarm memory load track key; light moderate heavy; users
_ANSI_DARK = _variables(
    "ansi_default ansi_default ansi_green ansi_yellow ansi_red ansi_cyan ansi_cyan"
    " ansi_bright_black ansi_cyan",
    "ansi_default ansi_cyan ansi_yellow",
    "ansi_magenta ansi_bright_blue",
)
_ANSI_LIGHT = _variables(
    "ansi_default ansi_default ansi_green ansi_magenta ansi_red ansi_blue ansi_blue"
    " ansi_bright_black ansi_blue",
    "ansi_bright_black ansi_default ansi_magenta",
    "ansi_blue ansi_cyan",
)
# On a terminal of 256 colours, from the colour cube that all such terminals have. Those of
# ansi-dark are legible on white too: not every terminal tells its background.
_DARK_SHADES = _variables(
    "- - - - - - - - -",
    "#5f87af #00afd7 #d78700",
    "#ff5faf #008787 #875fff #ff00ff #af5f87 #af87d7 #0087ff #d700af",
)
_LIGHT_SHADES = _variables(
    "- - #005f00 #875f00 #af0000 - - - -",
    "#5f5f87 #005faf #875f00",
    "#5f00af #d70087 #005f5f #005fff #af00ff #87005f #000087 #875faf",
)
_DARK = _variables(
    "#8a8f98 #c5cad3 #5fd787 #ffd75f #ff5f57 #4fc1d0 #4fc1d0 #3a3f4a #62aeef",
    "#5b8fd0 #4fc1d0 #f5a050",
    "#f820a0 #00f8f8 #2080f8 #20a080 #e0a0f8 #c0c0a0 #a080a0 #c040f8",
)
_LIGHT = _variables(
    "#6b7078 #33373d #1a7f37 #8a5c00 #cf222e #1f6fb2 #0f8aa8 #d0d4da #1f6fb2",
    "#5c6b80 #0b6fa5 #b35900",
    "#000080 #c000e0 #e00080 #800040 #2040f8 #006060 #a06080 #6000a0",
)
# Free is sky blue and an alarm is orange (Okabe and Ito). All others differ from these and from
# each other in lightness, or as blue from yellow: people who cannot see red from green see these
# differences.
_COLORBLIND = _variables(
    "#8a8f98 #c5cad3 #56b4e9 #ffffff #ff8c42 #9fd0c8 #9fd0c8 #3a3f4a #56b4e9",
    "#6f7fb0 #9fd0c8 #f0e442",
    "#8080f8 #a8f8a8 #808000 #d78787",
)


def _ansi(name: str, variables: dict[str, str]) -> Theme:
    """Return Textual's theme of the terminal's own colours, with the roles of gputop."""
    theme = BUILTIN_THEMES[name]
    return replace(theme, variables={**theme.variables, **variables})


def _rgb(
    name: str, plain: str, variables: dict[str, str], *, dark: bool = True, warning: str = ""
) -> Theme:
    """Return a theme in which Textual's own widgets have the colours of the roles."""
    foreground, background, surface, panel = plain.split()
    return Theme(
        name,
        primary=variables["gp-key"],
        error=variables["gp-alarm"],
        warning=warning or variables["gp-notice"],
        success=variables["gp-good"],
        foreground=foreground,
        background=background,
        surface=surface,
        panel=panel,
        dark=dark,
        variables=variables,
    )


# foreground background surface panel
_DARK_PLAIN = "#e3e6eb #16181d #1d2026 #252931"
_RGB = (
    _rgb("dark", _DARK_PLAIN, _DARK),
    _rgb("light", "#1f2328 #fbfcfd #f1f3f5 #e6e9ed", _LIGHT, dark=False),
    _rgb("colorblind", _DARK_PLAIN, _COLORBLIND, warning="#f0e442"),
)

DEFAULTS = _ANSI_DARK
"""Values of the variables in a theme that is not of gputop."""


def fitting(shades: bool) -> tuple[Theme, ...]:
    """Return the themes of gputop, with `shades` for a terminal of more than 16 colours."""
    dark, light = _ANSI_DARK, _ANSI_LIGHT
    if shades:
        dark, light = _shaded(dark, _DARK_SHADES), _shaded(light, _LIGHT_SHADES)
    return (_ansi("ansi-dark", dark), _ansi("ansi-light", light), *_RGB)


def _shaded(variables: dict[str, str], shades: dict[str, str]) -> dict[str, str]:
    return variables | {name: value for name, value in shades.items() if value != "-"}


THEMES = fitting(shades=False)


class UserColours:
    """Gives each user a colour, which follows from the name and is the same on every run.

    If another user has that colour already, it is the next free one; names go in order. Users keep
    their colour while they are present.
    """

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def show(self, users: Iterable[str | None]) -> None:
        """Give colours to the users of a machine, and take them from users who are gone."""
        here = {user for user in users if user is not None}
        if here != self._of.keys():
            self._of = {user: colour for user, colour in self._of.items() if user in here}
            self._add(here - self._of.keys())

    def role(self, user: str) -> str:
        if user not in self._of:
            self._add({user})
        return USER_ROLES[self._of[user]]

    def _add(self, users: set[str]) -> None:
        """Give users colours: first to those whose own is still free, then to each the next that
        the fewest have. It counts only once, as another machine may report any number of users."""
        taken = Counter(self._of.values())
        own = {
            name: crc32(name.encode("utf-8", "replace")) % USER_COLOURS for name in sorted(users)
        }
        firsts = {colour: user for user, colour in reversed(own.items()) if not taken[colour]}
        for user in sorted(own, key=lambda user: firsts.get(own[user]) != user):
            order = ((own[user] + step) % USER_COLOURS for step in range(USER_COLOURS))
            colour = self._of[user] = min(order, key=taken.__getitem__)
            taken[colour] += 1


_users = UserColours()
show_users, user_role = _users.show, _users.role
"""Shared by the whole program: a user has the same colour on every screen."""
