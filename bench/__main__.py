"""`python -m bench`: see bench/README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.measures import Values
from bench.medians import markdown
from bench.programs import installed
from bench.report import dump, facts, table
from bench.suite import PARTS, QUICK, Case, Plan, cases, run
from tests.driver.build import BuildError


def main() -> int:
    """Measure what the options name, and return the exit status."""
    options = _parser().parse_args()
    if options.medians:
        return _medians(options.medians)
    wanted = cases(options.quick, options.only)
    if not wanted:
        print(f"bench: nothing is called {' '.join(options.only)}; see --list", file=sys.stderr)
        return 2
    if options.list:
        print(*wanted, sep="\n")
        return 0
    plan = QUICK if options.quick else Plan()
    if options.driver == "instant":
        plan = replace(plan, driver=[])
    try:
        _measure(wanted, plan, options)
    except BuildError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _medians(paths: list[Path]) -> int:
    try:
        print(markdown(paths))
    except (OSError, ValueError, KeyError) as error:
        print(f"bench: no figures of --json: {error}", file=sys.stderr)
        return 2
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
        "--medians", type=Path, nargs="+", metavar="FILE",
        help="measure nothing; print the table of the manual, of such files",
    )  # fmt: skip
    return parser


def _measure(wanted: list[Case], plan: Plan, options: argparse.Namespace) -> None:
    programs = installed()
    about = facts(programs, options.driver)
    print(*(f"{name} {version}" for name, version in about["versions"].items()), sep=", ", end="; ")
    print(f"Python {about['python']}, {about['cpus']} CPUs, load {about['load'][0]}, ", end="")
    print(f"{options.driver} driver")
    results: dict[str, dict[str, Values]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs have byte code
        os.environ.update({f"XDG_{name}_HOME": folder for name in ("CONFIG", "STATE", "CACHE")})
        for case in wanted:
            results[str(case)] = run(case, programs, plan)
            print("\n" + table(str(case), results[str(case)]), flush=True)
            if options.json is not None:
                options.json.write_text(dump(about, results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
