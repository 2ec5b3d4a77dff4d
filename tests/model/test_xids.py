"""The table of XIDs against NVIDIA's catalogue, as tests/data/xids.tsv has it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gputop.model.health.xids import CATALOG, XIDS, xid_finding

PATH = Path(__file__).parent.parent / "data/xids.tsv"
CATALOGUE = {
    int(row["number"]): row
    for row in csv.DictReader(
        (line for line in PATH.read_text().splitlines() if not line.startswith("#")),
        delimiter="\t",
    )
}
SOURCES = {"catalog", "trigger", "dcgm", "smi", "nverror", "unverified"}
LEVELS = {"attention": "error", "notice": "warning", "application": "warning"}
BEYOND = {173, 175, 176}
"""Of which the catalogue knows nothing."""

WORDS = {
    "RESET_GPU": "nvidia-smi --gpu-reset -i {index}",
    "RESTART_APP": "start",
    "RESTART_BM": "reboot",
    "RESTART_VM": "restart the virtual machine",
    "CHECK_MECHANICALS": "power cables and seat",
    "CONTACT_SUPPORT": "support",
    "UPDATE_SWFW": "update",
    "WORKFLOW_XID_48": "--gpu-reset",
    "WORKFLOW_NVLINK_ERR": "switch, bridge and seat",
    "WORKFLOW_NVLINK5_ERR": "RECOVERY",
    "XID_154": "RECOVERY",
}
"""What the advice says, by NVIDIA's immediate action."""


def test_the_catalogue_is_whole() -> None:
    assert list(CATALOGUE) == list(range(1, 173))
    assert set(XIDS) == set(CATALOGUE) | BEYOND


def test_each_is_as_grave_as_in_the_catalogue() -> None:
    for number, row in CATALOGUE.items():
        known = xid_finding(number)
        assert known.level == LEVELS[row["severity"]], number
        assert WORDS.get(row["immediate"], "") in known.advice, number
        if row["immediate"] == "IGNORE":
            assert known.level != "error", number
            assert "--gpu-reset" not in known.advice, number
        if row["immediate"] in ("RESET_GPU", "RESTART_BM", "RESTART_VM", "CONTACT_SUPPORT"):
            assert known.level == "error", number
        if row["immediate"] == "RESTART_APP":
            assert known.level == ("error" if number == 94 else "warning"), number


def test_each_has_words() -> None:
    for number in (*XIDS, 174, 7777):
        known = xid_finding(number)
        assert known.text, number
        assert known.advice, number
        assert "{" not in (known.text + known.advice).replace("{index}", ""), number


def test_the_table_says_what_was_read_and_what_was_not() -> None:
    """Within the catalogue nothing is unverified; beyond it nothing is claimed to be read."""
    sources = {number: set(source.split()) for number, (_, source) in XIDS.items()}
    assert all(source and source <= SOURCES for source in sources.values())
    assert {number for number in sources if sources[number] == {"unverified"}} == BEYOND


@pytest.mark.parametrize("number", [0, 174, 177, 999, 7777, -1])
def test_what_is_not_known_is_not_harmless(number: int) -> None:
    known = xid_finding(number)
    assert known.level == "error"
    assert CATALOG in known.advice
    assert "dmesg" in known.advice


def test_a_corrected_error_of_the_link_to_the_cpu_needs_no_reset() -> None:
    corrected, fatal = xid_finding(121), xid_finding(173)
    assert corrected.level == "warning"
    assert "corrected" in corrected.text
    assert "reset" not in corrected.advice
    assert fatal.level == "error"


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ((48,), "stop all programs on it and reset it"),
        ((48, 63), "start nothing new on it, let its programs finish, then reset it"),
        ((48, 63, 64), "could not be replaced"),
        ((48, 172), "in the chip's own memory"),
        ((171, 48), "in the card's memory"),
        ((48, 63, 171), "let its programs finish"),
    ],
)
def test_an_uncorrected_error_is_told_by_those_beside_it(
    beside: tuple[int, ...], words: str
) -> None:
    assert words in xid_finding(48, beside).advice


def test_work_that_was_cleared_away_alone_on_switches() -> None:
    alone = xid_finding(45, (45, 45), fabric=True)
    assert "systemctl restart nvidia-fabricmanager" in alone.advice
    assert alone.level == "warning"  # a kill leads to it as well
    for other in (xid_finding(45, (45, 48), fabric=True), xid_finding(45, (45,), fabric=False)):
        assert "fabricmanager" not in other.advice
