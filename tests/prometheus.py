"""A real Prometheus server on a free port of 127.0.0.1, and promtool.

    with Prometheus(folder, scraping("127.0.0.1:9835")) as prometheus:
        prometheus.wait_for("up == 1")
        assert prometheus.value("count(gputop_gpu_free)") == 8

A server begins to scrape five seconds after its start, and nothing makes it begin sooner: let the
tests of a file share one.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.conftest import needed
from tests.patience import until

_LISTENS = re.compile(r'msg="Listening on".* address=(\S+)')
_STARTS = 30.0
"""Seconds: one that has blocks of many series to load takes its time."""
_SCRAPING = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
  evaluation_interval: {interval}
rule_files: [{rules}]
scrape_configs:
  - job_name: {job}
    static_configs: [{{targets: [{targets}]}}]
{more}"""


class Answer(NamedTuple):
    """One series of an instant query."""

    labels: dict[str, str]
    value: float


class QueryError(AssertionError):
    """The server does not take a query."""


def scraping(
    *targets: str,
    job: str = "gputop",
    interval: str = "1s",
    rules: Iterable[Path] = (),
    more: str = "",
) -> str:
    """Return a configuration that scrapes these targets, `HOST:PORT` each.

    rules: files of rules; more: lines of YAML for this job, indented by four.
    """
    words = {"targets": targets, "rules": list(map(str, rules))}
    lists = {name: ", ".join(map(json.dumps, values)) for name, values in words.items()}
    return _SCRAPING.format(job=job, interval=interval, more=more, **lists)


class Prometheus:
    """A context manager; `url` is where it answers."""

    def __init__(
        self, folder: Path, config: str = "", *options: str, data: Path | None = None
    ) -> None:
        """folder: for its files; options: more of the command line; data: its blocks, if there
        are some already (`promtool tsdb create-blocks-from openmetrics FILE DATA`)."""
        self._config, self._log = folder / "prometheus.yml", folder / "prometheus.log"
        self._config.write_text(config)
        self._options = options
        self._data = data or folder / "prometheus-data"

    def __enter__(self) -> Prometheus:
        program = needed("prometheus", "prometheus")
        command = [
            program, "--config.file", str(self._config), "--storage.tsdb.path", str(self._data),
            "--web.listen-address", "127.0.0.1:0", *self._options,
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            self.url = f"http://{self._address()}"
            until(self._is_ready, _STARTS, self._log.read_text)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, if it has not ended yet."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def query(self, expression: str, at: float | None = None) -> list[Answer]:
        """Return the series of an instant query, of now or of a time. QueryError."""
        words = {"query": expression} | ({} if at is None else {"time": str(at)})
        result = self.api("query", **words)["result"]
        if isinstance(result[0] if result else None, float):  # of an expression without series
            return [Answer({}, float(result[1]))]
        return [Answer(series["metric"], float(series["value"][1])) for series in result]

    def value(self, expression: str) -> float:
        """Return the only value of a query."""
        answers = self.query(expression)
        assert len(answers) == 1, (expression, answers)
        return answers[0].value

    def wait_for(self, expression: str, within: float = 20.0) -> list[Answer]:
        """Return the series of a query as soon as there are any."""
        return until(lambda: self.query(expression), within, lambda: (expression, self.targets()))

    def targets(self) -> list[dict[str, Any]]:
        """Return what is scraped, and how that went."""
        targets: list[dict[str, Any]] = self.api("targets")["activeTargets"]
        return targets

    def api(self, path: str, **words: str) -> Any:
        """Return the data that `/api/v1/PATH` gives. QueryError."""
        data = urllib.parse.urlencode(words).encode() if words else None
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", data, _STARTS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{path} {words}: {error.read().decode()}") from None

    def _address(self) -> str:
        def listens() -> re.Match[str] | None:
            assert self.process.poll() is None, self._log.read_text()
            return _LISTENS.search(self._log.read_text())

        return until(listens, _STARTS, self._log.read_text)[1]

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_STARTS):
                return True
        except urllib.error.HTTPError:  # it reads its blocks
            return False


def promtool(*words: str | Path, text: str | None = None) -> str:
    """Return what promtool says of its arguments, and of a text at its standard input.

    AssertionError with its words where it finds something wrong.
    """
    program = needed("promtool", "prometheus")
    command = [program, *map(str, words)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
