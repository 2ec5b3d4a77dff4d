"""Texts of every family that people paste, judged by hand: no wrong claim, the right reason."""

from __future__ import annotations

import json
from typing import Any

from gputop.model.cuda.pasted.reading import Pasted, read_pasted
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.environment import NAME, ORDER
from tests.model.inventories import h100, indices
from tests.model.test_visibility_vectors import VECTORS_FILE


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads(VECTORS_FILE.with_name(name).read_text(encoding="utf-8"))["cases"]  # type: ignore[no-any-return]


CASES, JUDGED_BEFORE = cases("families.json"), cases("attacked.json")


def read(text: str) -> Pasted:
    pasted = read_pasted(text)
    assert pasted is not None
    if pasted.unknown is not None:
        assert (pasted.value, pasted.order, pasted.rest) == (None, None, ())
    return pasted


def is_read_right(case: dict[str, Any]) -> bool:
    pasted = read(case["text"])
    if "refused" in case:
        return pasted.unknown == f"not understood: {case['refused']}"
    if case["expect"] == "unknown":
        return pasted.unknown is not None
    return (pasted.value, pasted.unknown) == (case["expect"]["value"], None)


def test_texts_of_every_family() -> None:
    assert [case["text"] for case in CASES if not is_read_right(case)] == []


def test_texts_that_were_judged_before_gputop_was_asked() -> None:
    for case in JUDGED_BEFORE:
        pasted = read(case["text"])
        if "refused" in case:
            assert pasted.unknown == f"not understood: {case['refused']}"
        else:
            claimed = None if pasted.unknown else indices(resolve(pasted.value, h100(4)).visible)
            assert claimed == case["expect"], case


def test_the_files_have_many_claims_and_many_refusals() -> None:
    claims = [
        case for case in (*CASES, *JUDGED_BEFORE) if case.get("expect") not in (None, "unknown")
    ]
    assert len(claims) > 210
    assert len(CASES) + len(JUDGED_BEFORE) - len(claims) > 400


def test_what_the_shell_has_already() -> None:
    own = {NAME: "3", ORDER: "PCI_BUS_ID"}

    def given(text: str) -> tuple[str | None, str | None]:
        pasted = read_pasted(text, own)
        assert pasted is not None
        assert pasted.unknown is None
        return pasted.value, pasted.order

    assert given(f"echo ${NAME}; nohup python t.py &") == ("3", "PCI_BUS_ID")
    assert given(f"{NAME}=1 python t.py") == ("1", "PCI_BUS_ID")
    assert given(f"unset {NAME}; python t.py") == (None, "PCI_BUS_ID")
    assert given(f"echo ${NAME}; env -i python t.py") == (None, None)
    assert given(f"echo ${NAME}; sudo python t.py") == (None, None)
    assert given(f"{NAME}=${{{NAME}:-0}} python t.py")[0] == "3"
    assert given(f"import os\nos.environ.setdefault('{NAME}', '1')")[0] == "3"
    assert given(f"{NAME}=2\npython t.py")[0] == "2"
    assert given(f"export {NAME}=2\nexport {ORDER}=FASTEST_FIRST") == ("2", "FASTEST_FIRST")
    container = f"docker run --gpus all -e {NAME}=0"
    assert given(f"{container} img python t.py") == ("0", None)
    assert given(f"{container} -e {ORDER}=PCI_BUS_ID img python t.py") == ("0", "PCI_BUS_ID")


def test_several_programs_have_an_answer_each() -> None:
    several = read(f"black .\n{NAME}= pytest x\n{NAME}=1,2 ./a\n{NAME}=$G ./b")
    assert several.unknown == (
        "not understood: several programs or values:"
        " black .: unset; pytest x: none; ./a: 1,2; ./b: not known"
    )
