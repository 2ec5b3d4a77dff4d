"""The helper of other tests: a real Prometheus, and promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prometheus import Prometheus, QueryError, promtool, scraping

pytestmark = pytest.mark.system


def test_a_server_answers(tmp_path: Path) -> None:
    with Prometheus(tmp_path, scraping("127.0.0.1:1", interval="100ms")) as prometheus:
        assert prometheus.value("1 + 1") == 2
        prometheus.wait_for('up{job="gputop"} == 0')
        assert prometheus.query("no_such_series") == []
        with pytest.raises(QueryError, match="parse error"):
            prometheus.query("1 +")
    assert prometheus.process.poll() is not None


def test_promtool_finds_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match="counter metrics should have"):
        promtool("check", "metrics", text="# HELP a b\n# TYPE a counter\na 1\n")
