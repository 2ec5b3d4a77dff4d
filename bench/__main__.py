"""`python -m bench`: see bench/README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import manual
from bench.measures import Values
from bench.programs import Program, installed
from bench.report import dump, facts, table
from bench.suite import PARTS, QUICK, Case, Plan, cases, of_manual, run
from tests.driver.build import BuildError


def main() -> int:
    """Measure what the options name, and return the exit status."""
    options = _parser().parse_args()
    plan = QUICK if options.quick else Plan()
    wanted = [(case, plan) for case in cases(options.quick, options.only)]
    if options.manual:
        wanted = of_manual()
    if not wanted:
        print(f"bench: nothing is called {' '.join(options.only)}; see --list", file=sys.stderr)
        return 2
    if options.list:
        print(*(case for case, _ in wanted), sep="\n")
        return 0
    if options.driver == "instant":
        wanted = [(case, replace(plan, driver=[])) for case, plan in wanted]
    try:
        with _settled():
            _measure(wanted, options)
    except BuildError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure gputop beside its peers."
    )
    parser.add_argument("--quick", action="store_true", help="ten minutes: 8x200 at 200x50")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help=f"what has this in its name: {', '.join(PARTS)}, 8x200, 80x24; may be repeated",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="say what would be measured")
    parser.add_argument(
        "--driver", choices=("timed", "instant"), default="timed",
        help="timed: calls take as long as real ones may; instant: no time",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file")
    parser.add_argument(
        "--manual", type=int, nargs="?", const=3, default=0, metavar="RUNS",
        help="ten minutes: write the table of the manual, medians of RUNS short runs (3)",
    )  # fmt: skip
    return parser


@contextmanager
def _settled() -> Iterator[None]:
    """Give every program byte code, as an installed one has, and settings of nobody."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.update({f"XDG_{name}_HOME": folder for name in ("CONFIG", "STATE", "CACHE")})
        yield


def _measure(wanted: Sequence[tuple[Case, Plan]], options: argparse.Namespace) -> None:
    """Measure once, or as often as the manual's table needs, and write that table."""
    programs, runs = installed(), []
    for _ in range(options.manual or 1):
        about = facts(programs, options.driver) | {"commit": manual.commit()}
        print(_heading(about), flush=True)
        runs.append((about, _run(wanted, programs, about, options.json)))
    if options.manual:
        manual.write(*zip(*runs, strict=True))


def _heading(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{versions}; commit {about['commit']}, Python {about['python']}, {about['cpus']} CPUs, "
        f"load {about['load'][0]}, {about['driver']} driver"
    )


def _run(
    wanted: Sequence[tuple[Case, Plan]],
    programs: Sequence[Program],
    about: Mapping[str, Any],
    path: Path | None,
) -> dict[str, dict[str, Values]]:
    """Measure all cases, print a table of each, and write all values to a file as they come."""
    results: dict[str, dict[str, Values]] = {}
    for case, plan in wanted:
        results[str(case)] = run(case, programs, plan)
        print("\n" + table(str(case), results[str(case)]), flush=True)
        if path is not None:
            path.write_text(dump(about, results), encoding="utf-8")
    return results


if __name__ == "__main__":
    sys.exit(main())
