"""Colours: users apart from each other and from what is free or an alarm, in every theme; and the
same on every run."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from textual.theme import Theme

from gputop.tui.themes import THEMES, USER_ROLES, UserColours, fitting
from tests.builders_tui import frame_of, gpu_of, process_of, shown

USERS = list(USER_ROLES)
LOADS = ["light", "moderate", "heavy"]
_MEANT = ["good", "notice", "alarm", *LOADS]
_XTERM = {"ansi_green": "#00cd00", "ansi_red": "#cd0000", "ansi_yellow": "#cdcd00"}
"""What a terminal may show."""
_AS_SEEN = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
}
"""Machado, Oliveira and Fernandes, 2009: linear RGB as it is seen without one kind of cones."""
_LMS = ((0.412, 0.536, 0.051), (0.212, 0.681, 0.107), (0.088, 0.282, 0.630))
_LAB = ((0.210, 0.794, -0.004), (1.978, -2.429, 0.451), (0.026, 0.783, -0.809))
"""Oklab (Ottosson, 2020): distances in it are about those to the eye."""

Vector = tuple[float, ...]


def linear(colour: str) -> Vector:
    """Of a colour as #rrggbb."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def times(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    """The product."""
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lab(colour: str, eye: str) -> Vector:
    """A colour in Oklab, as an eye sees it."""
    seen = tuple(max(0.0, part) for part in times(_AS_SEEN[eye], linear(colour)))
    return times(_LAB, tuple(part ** (1 / 3) for part in times(_LMS, seen)))


def apart(colour: str, other: str, eye: str = "normal") -> float:
    """How far apart two colours are: 100 is from black to white."""
    pairs = zip(lab(colour, eye), lab(other, eye), strict=True)
    return 100 * float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def luminance(colour: str) -> float:
    """As WCAG 2 has it."""
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(colour: str, other: str) -> float:
    """As WCAG 2 has it: 1 to 21."""
    dark, bright = sorted((luminance(colour), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def colours(theme: Theme, roles: list[str]) -> list[str]:
    """The colours of roles in a theme; those of the terminal as xterm has them."""
    values = [theme.variables[f"gp-{role}"] for role in roles]
    return [_XTERM.get(value, value) for value in values]


_SHADED = fitting(shades=True)


_BACKGROUNDS = {"ansi-dark": ["#000000"], "ansi-light": ["#ffffff", "#fdf6e3"]}
"""Of terminals: black; white and Solarized's paper."""


def backgrounds(theme: Theme) -> list[str]:
    """What a theme of 256 colours or more is drawn on."""
    return _BACKGROUNDS.get(theme.name) or [theme.background or ""]


def looks(theme: Theme) -> list[tuple[str, str]]:
    """The colour of each role of users, and its text style."""
    styles = [theme.variables[f"gp-{role}-style"] for role in USERS]
    return list(zip(colours(theme, USERS), styles, strict=True))


@pytest.mark.parametrize("theme", _SHADED, ids=lambda theme: theme.name)
def test_users_are_clearly_apart(theme: Theme) -> None:
    """From each other by colour, or by a line under it for the colour-blind; from what is free,
    from a warning, from an alarm, and from every load."""
    is_narrowed = theme.name == "colorblind"
    assert len(USERS) > 6
    assert len(set(looks(theme))) == len(USERS)
    users = sorted(set(colours(theme, USERS)))
    assert len(users) == (len(USERS) // 2 if is_narrowed else len(USERS))
    levels, loads = colours(theme, ["good", "notice", "alarm"]), colours(theme, LOADS)
    for eye in _AS_SEEN if is_narrowed else ["normal"]:
        assert min(apart(colour, other, eye) for colour, other in combinations(users, 2)) >= 10
        assert min(apart(user, other, eye) for user in users for other in levels) >= 9.5
        assert min(apart(user, load, eye) for user in users for load in loads) >= 8.5


@pytest.mark.parametrize("theme", _SHADED, ids=lambda theme: theme.name)
def test_loads_are_apart_from_each_other_and_from_free_and_alarms(theme: Theme) -> None:
    eyes = _AS_SEEN if theme.name == "colorblind" else ["normal"]
    loads, fixed = colours(theme, LOADS), colours(theme, ["good", "alarm"])
    for eye in eyes:
        assert min(apart(colour, other, eye) for colour, other in combinations(loads, 2)) >= 8
        assert min(apart(load, other, eye) for load in loads for other in fixed) >= 9


@pytest.mark.parametrize("theme", _SHADED, ids=lambda theme: theme.name)
def test_users_can_be_read(theme: Theme) -> None:
    for background in backgrounds(theme):
        for colour in colours(theme, USERS):
            least = 4 if theme.name == "colorblind" else 4.5
            assert contrast(colour, background) >= least, (colour, background)


@pytest.mark.parametrize("theme", [t for t in _SHADED if "light" in t.name], ids=lambda t: t.name)
def test_warnings_and_loads_can_be_read_on_light(theme: Theme) -> None:
    """WCAG 2 wants 4.5 for text."""
    for background in backgrounds(theme):
        for role, colour in zip(_MEANT, colours(theme, _MEANT), strict=True):
            assert contrast(colour, background) >= 4.5, (role, colour, background)


def test_the_dark_theme_can_be_read_on_white() -> None:
    """Not every terminal says what its background is."""
    for colour in colours(_SHADED[0], USERS):
        assert contrast(colour, "#ffffff") >= 2.6


@pytest.mark.parametrize("theme", THEMES[:2], ids=lambda theme: theme.name)
def test_with_16_colours_users_differ_by_hue_or_by_style(theme: Theme) -> None:
    """Bright ones are no other hue: on many terminals they are hardly told apart."""
    hues = [(colour.replace("bright_", ""), style) for colour, style in looks(theme)]
    assert len(set(hues)) == len(USERS)
    loads = {theme.variables[f"gp-{role}"] for role in LOADS}
    levels = {theme.variables[f"gp-{role}"] for role in ("good", "notice", "alarm")}
    assert len(loads) == 3
    assert not {"ansi_green", "ansi_red"} & loads
    assert not {"ansi_default", *loads, *levels} & {colour for colour, _ in hues}


def test_a_user_has_the_same_colour_on_every_run() -> None:
    """Whoever came first, and whoever else is there."""
    assert UserColours().role("alice") == "user7"
    for others in (["bob"], ["bob", "dave", "zoe"], ["root", "ubuntu"]):
        colours_ = UserColours()
        colours_.show(others)
        colours_.show([*others, "alice", None])
        assert colours_.role("alice") == "user7"


def test_users_that_want_one_colour_get_different_ones() -> None:
    """And the same ones in any order, as long as there are any left."""
    users = ["carol", "alice", "frank", "bob", "root", "serving", "zoe", "eve"]
    assert UserColours().role("carol") == UserColours().role("root") == UserColours().role("zoe")
    roles = []
    for order in (users, users[::-1], sorted(users)):
        colours_ = UserColours()
        colours_.show(order)
        roles.append({user: colours_.role(user) for user in users})
    assert roles[0] == roles[1] == roles[2]
    assert set(roles[0].values()) == set(USERS)
    assert roles[0]["alice"] == UserColours().role("alice")
    assert roles[0]["bob"] == UserColours().role("bob")


def test_who_is_there_keeps_his_colour_and_who_is_gone_gives_it_back() -> None:
    colours_ = UserColours()
    colours_.show(["carol"])
    assert colours_.role("carol") == "user3"
    colours_.show(["carol", "zoe"])
    assert colours_.role("carol") == "user3"
    assert colours_.role("zoe") != "user3"
    colours_.show(["zoe"])
    colours_.show(["zoe", "root"])
    assert colours_.role("root") == "user3"
    many = [f"user-{n}" for n in range(40)]
    colours_.show(many)
    assert {colours_.role(user) for user in many} == set(USERS)


async def test_with_16_colours_a_line_tells_users_apart_and_without_colours_nothing_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM", raising=False)
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(1), process_of(2, 1, user="bob"))
    for variable, lines in (("LANG", {"alice": True, "bob": False}),
                            ("NO_COLOR", {"alice": False, "bob": False})):  # fmt: skip
        monkeypatch.setenv(variable, "C")
        async with shown(frame) as screen:
            found = {
                segment.text.strip(): bool(segment.style and segment.style.underline)
                for line in screen.segments
                for segment in line
                if segment.text.strip() in lines
            }
            assert found == lines


@pytest.mark.timeout(10)
def test_a_host_that_tells_of_many_users_does_not_stop_the_screen() -> None:
    """A hostile agent may name as many: with the colours counted anew for each it took minutes."""
    colours = UserColours()
    colours.show(f"user{number}" for number in range(30_000))
    roles = Counter(colours.role(f"user{number}") for number in range(30_000))
    assert max(roles.values()) - min(roles.values()) <= 1
