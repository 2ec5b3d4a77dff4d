"""Which variables `sudo` and `env` keep, by the options that people write before the program."""

from __future__ import annotations

import pytest

from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.machine.environment import NAME, ORDER


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", (None, None)),
        ("-E", ("0", "PCI_BUS_ID")),
        ("-nE", ("0", "PCI_BUS_ID")),
        ("-s -E", None),
        ("-p asks -E", None),
        ("-u bob -E", None),
        ("--user bob -E", None),
        ("-D /tmp -E", None),
        ("-uEve", None),
        ("--preserve-env=PATH", (None, None)),
        (f"-E {NAME}=1", ("1", "PCI_BUS_ID")),
        (f"{NAME}=1 -E", None),
        ("--preserve-env", None),
        (f"--preserve-env={NAME}", None),
        (f"--preserve-env='PATH,{NAME}'", None),
        (f"--preserve-env={ORDER} {NAME}=1", None),
    ],
)
def test_what_sudo_keeps(options: str, expected: tuple[str | None, str | None] | None) -> None:
    """None: that is not claimed."""
    for text in (
        f"export {NAME}=0 {ORDER}=PCI_BUS_ID\nsudo {options} python t.py",
        f"{NAME}=0 {ORDER}=PCI_BUS_ID sudo {options} python t.py",
    ):
        pasted = read_pasted(text)
        assert pasted is not None
        if expected is None:
            assert pasted.unknown == "not understood: what sudo keeps is not in the text"
        else:
            assert pasted.unknown is None
            assert (pasted.value, pasted.order, pasted.rest) == (*expected, ("python", "t.py"))


@pytest.mark.parametrize(
    "option", [f"-u {NAME}", f"--unset={NAME}", "-i", "-iv", "--ignore-environment"]
)
def test_what_env_takes_away(option: str) -> None:
    pasted = read_pasted(f"export {NAME}=0\nenv {option} python t.py")
    assert pasted is not None
    assert (pasted.unknown, pasted.value, pasted.rest) == (None, None, ("python", "t.py"))


def test_an_order_that_is_not_exported() -> None:
    def order(*lines: str) -> str | None:
        pasted = read_pasted("\n".join(lines))
        assert pasted is not None
        assert pasted.unknown is None
        return pasted.order

    plain, value = f"{ORDER}=PCI_BUS_ID", f"{NAME}=0"
    assert order(f"export {value}", f"export {plain}") == "PCI_BUS_ID"
    assert order(value, plain) == order(plain, value) == "PCI_BUS_ID"
    assert order(f"export {value}", plain) is None
    assert order(plain, f"export {value}") is None
    assert order(plain, f"unset {NAME}") is None


def test_an_option_of_env_inside_of_another_shell() -> None:
    for rest in (
        f"bash -c 'env -u{NAME} python t.py'",
        f"bash -s <<'EOF'\nenv -u{NAME} python t.py\nEOF",
    ):
        pasted = read_pasted(f"{NAME}=1 {rest}")
        assert pasted is not None
        assert pasted.unknown is not None
