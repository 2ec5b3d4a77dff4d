"""`gputop export` among slow, hostile and many clients; TLS, passwords, files, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.commands.shared.server_options import Address, Reloader, address, authorization
from gputop.errors import UsageError
from tests.conftest import MachineFactory, needed
from tests.export.driving import GPUTOP, Exporter
from tests.patience import Deadline, until

MIB_IN_KB = 1024
ASK = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer_to(exporter: Exporter, request: bytes) -> bytes:
    """All that comes back, until the exporter closes."""
    with exporter.connect() as connection:
        connection.sendall(request)
        return everything(connection)


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.system
def test_slow_hostile_and_many_clients() -> None:
    with Exporter("--demo", "export") as exporter, ExitStack() as stack:
        exporter.wait_for("gputop_up", 1)
        what_is_no_scrape_is_refused(exporter)
        memory, threads = exporter.status("VmRSS"), exporter.status("Threads")
        # Some take a byte a second, many have not asked yet, and one never ends asking.
        slow = [stack.enter_context(exporter.connect(receive=2048)) for _ in range(20)]
        for connection in slow:
            connection.sendall(ASK)
            assert connection.recv(1) == b"H"
        silent = [stack.enter_context(exporter.connect()) for _ in range(200)]
        for connection in silent:
            connection.sendall(ASK[:20])
        endless = stack.enter_context(exporter.connect())
        with suppress(ConnectionError):
            for number in range(1 << 20):
                endless.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))
        deadline = Deadline(5)
        for connection in slow:
            assert connection.recv(1) == b"T"
        assert "gputop_gpu_up" in exporter.text()
        assert deadline.left() > 0
        crowd_is_served(exporter, stack)
        assert exporter.status("Threads") == threads
        assert exporter.status("VmRSS") - memory < 24 * MIB_IN_KB
        # Those who hold on to a connection lose it to those who come after them.
        later = [stack.enter_context(exporter.connect()) for _ in range(300)]
        assert "gputop_gpu_up" in exporter.text()
        assert closed(silent[0])
        assert not closed(later[-1])


def crowd_is_served(exporter: Exporter, stack: ExitStack) -> None:
    """200 ask at the same moment, and each gets everything."""
    crowd = [stack.enter_context(exporter.connect()) for _ in range(200)]
    for connection in crowd:
        connection.sendall(ASK)
    for connection in crowd:
        answer = everything(connection)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}\r\n".encode() in head


def closed(connection: socket.socket) -> bool:
    """Whether the other end has gone."""
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def what_is_no_scrape_is_refused(exporter: Exporter) -> None:
    for request, status in (
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /metrics?name[]=up HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\xff\xfe\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.test:19400\r\n\r\n", b"421"),  # DNS rebinding
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: [::1]:19400\r\n\r\n", b"200"),
    ):
        assert answer_to(exporter, request).startswith(b"HTTP/1.1 " + status), request
    for page in (b"/metrics", b"/none"):
        answer = answer_to(exporter, b"HEAD " + page + b" HTTP/1.1\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")
    plain = answer_to(exporter, ASK[:-2] + b"Accept-Encoding: br, gzip;q=0\r\n\r\n")
    assert b"Content-Encoding" not in plain
    zipped = answer_to(exporter, ASK[:-2] + b"Accept-Encoding: gzip\r\n\r\n")
    assert b"Content-Encoding: gzip" in zipped
    assert len(zipped) < 20_000


@pytest.mark.system
def test_the_driver_is_read_once_an_interval_whoever_scrapes(machine: MachineFactory) -> None:
    here = machine("h200x8", log=True)
    with Exporter("-i", "60", "export", environ=here.env) as exporter:
        exporter.wait_for("gputop_up", 1)
        before = here.calls().count(("nvmlDeviceGetUtilizationRates", 0))
        until(lambda: exporter.agents)
        for _ in range(50):
            exporter.text()
        assert here.calls().count(("nvmlDeviceGetUtilizationRates", 0)) == before >= 1
        samples = exporter.samples()
        assert set(samples["gputop_readings_total"].values()) == {1}
        # An agent that dies takes its values along, and comes back.
        exporter.kill_agent()
        samples = exporter.wait_for("gputop_up", 0)
        assert "gputop_gpu_utilization_ratio" not in samples
        assert len(exporter.wait_for("gputop_up", 1)["gputop_gpu_utilization_ratio"]) == 8


# TLS and passwords


def make_certificate(certificate: Path, key: Path) -> None:
    subprocess.run(
        [needed("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip


def certificates_are_read_anew(exporter: Exporter, certificate: Path, key: Path) -> None:
    """The next client has the new one; while the files do not fit together, still the last."""

    def served() -> str:
        return ssl.get_server_certificate(("127.0.0.1", exporter.port), timeout=10)

    def heard(*words: str) -> None:
        assert exporter.process.stderr is not None
        line = exporter.process.stderr.readline()
        assert all(word in line for word in words), line

    first = served()
    assert first == certificate.read_text()
    make_certificate(new := certificate.with_name("new.pem"), new_key := key.with_name("new.key"))
    os.replace(new, certificate)
    assert served() == first
    heard("TLS with", str(certificate), "what was read before still counts")
    os.replace(new_key, key)
    assert served() == certificate.read_text() != first
    heard("read anew", str(certificate), str(key))
    exporter.process.send_signal(signal.SIGHUP)
    heard("read anew", str(certificate), str(key))
    assert served() == certificate.read_text()


@pytest.mark.system
def test_tls_and_a_password(tmp_path: Path) -> None:
    certificate, key, secret = (tmp_path / name for name in ("cert.pem", "key.pem", "auth"))
    make_certificate(certificate, key)
    secret.write_text("prometheus:geheimnis\n")
    secret.chmod(0o600)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--auth-file", str(secret))
    context = ssl.create_default_context(cafile=str(certificate))
    with Exporter("--demo", "export", *files) as exporter:
        url = f"https://{exporter.target}/metrics"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=context)
        right = urllib.request.Request(url, headers={"Authorization": authorization(str(secret))})  # type: ignore[dict-item]
        with urllib.request.urlopen(right, context=context) as answer:
            assert b"gputop_up" in answer.read()
        assert answer_to(exporter, ASK)[:4] != b"HTTP"
        with ExitStack() as stack:  # handshakes that never end cost memory: as few as the rest
            for _ in range(400):
                stack.enter_context(exporter.connect())
            with urllib.request.urlopen(right, context=context) as answer:
                assert b"gputop_up" in answer.read()
            assert len(os.listdir(f"/proc/{exporter.process.pid}/fd")) < 300
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(
                exporter.connect(), server_hostname="127.0.0.1"
            )
        certificates_are_read_anew(exporter, certificate, key)
        context = ssl.create_default_context(cafile=str(certificate))
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca",
             str(certificate))  # fmt: skip
    with Exporter("--demo", "export", *files) as exporter:
        url = f"https://{exporter.target}/metrics"
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(url, context=context)
        context.load_cert_chain(certificate, key)
        with urllib.request.urlopen(url, context=context) as answer:
            assert b"gputop_up" in answer.read()


def test_a_password_is_read_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "auth"
    path.touch(0o600)
    path.write_text("prometheus:old\n")
    wanted = Reloader(partial(authorization, str(path)), str(path))
    first = wanted()
    path.write_text("prometheus:newer\n")
    second = wanted()
    assert (first, second) == ("Basic cHJvbWV0aGV1czpvbGQ=", "Basic cHJvbWV0aGV1czpuZXdlcg==")
    path.chmod(0o644)
    assert wanted() == wanted() == second, "a mistake opens no door, and closes none"
    path.unlink()
    assert wanted() == wanted() == second
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(str(path))[0] for line in lines] == [
        "read anew: ", "", "'"
    ]  # fmt: skip


def test_a_password_is_in_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    path.write_text("prometheus:a:b\n")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="is readable by others: chmod go="):
        authorization(str(path))
    path.chmod(0o600)
    assert authorization(str(path)) == "Basic cHJvbWV0aGV1czphOmI="
    for text in ("", "prometheus", "prometheus:", ":x", "a:b\nc:d"):
        path.write_text(text)
        with pytest.raises(UsageError, match="one line, USER:PASSWORD"):
            authorization(str(path))


@pytest.mark.system
@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_a_password_comes_through_a_pipe(path: str) -> None:
    asked = f"from {authorization.__module__} import *; print(authorization({path!r}))"
    done = subprocess.run(
        [sys.executable, "-c", asked], input=b"a:b\n", capture_output=True, check=False
    )
    assert (done.stdout, done.stderr) == (b"Basic YTpi\n", b"")


@pytest.mark.parametrize(
    ("text", "meaning", "is_loopback"),
    [
        ("127.0.0.1:19400", Address("127.0.0.1", 19400), True),
        ("127.9.9.9:1", Address("127.9.9.9", 1), True),
        ("localhost:0", Address("localhost", 0), True),
        ("[::1]:19400", Address("::1", 19400), True),
        ("[::]:19400", Address("::", 19400), False),
        ("0.0.0.0:80", Address("0.0.0.0", 80), False),
        ("node-7.lab:80", Address("node-7.lab", 80), False),
    ],
)
def test_addresses(text: str, meaning: Address, is_loopback: bool) -> None:
    assert (address(text), meaning.is_loopback, str(meaning)) == (meaning, is_loopback, text)


@pytest.mark.parametrize(
    "text", ["", ":80", "80", "a", "a:", "a:65536", "::1:80", "[a]:1", "a b:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not HOST:PORT"):
        address(text)


# Files


@pytest.mark.system
def test_a_file_for_node_exporter(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched")
    folder = tmp_path / "textfile"
    folder.mkdir()
    path = folder / "gputop.prom"
    path.symlink_to(theirs)
    command = [*GPUTOP, "--demo", "export", "--textfile", str(folder), "-i", "0.2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: re.search(r"^gputop_readings_total [3-9]", path.read_text(), re.M))
        assert theirs.read_text() == "untouched"
        assert stat.S_IMODE(path.lstat().st_mode) == 0o644
        assert "gputop_gpu_utilization_ratio" in path.read_text()
        process.send_signal(signal.SIGHUP)
        before = path.stat().st_ino
        until(lambda: path.stat().st_ino != before)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert "\ngputop_up 0.0\n" in path.read_text(), "a file that stays does not look alive"
    assert "gputop_gpu_utilization_ratio" not in path.read_text()
    assert os.listdir(folder) == ["gputop.prom"]


def test_a_file_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo", "export", "--textfile", str(tmp_path), "--once"]) == 0
    assert "\ngputop_up 1.0\n" in (tmp_path / "gputop.prom").read_text()
    missing = str(tmp_path / "missing")
    assert main(["--demo", "export", "--textfile", missing, "--once"]) == 1
    assert capfd.readouterr() == (
        "", f"gputop: {missing}/gputop.prom cannot be written: No such file or directory\n"
    )  # fmt: skip


def test_a_unit_does_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "export --unit --names gputop,dcgm --no-users --listen 0.0.0.0:9400 --interval 10"
    secure = ["--tls-cert", "cert.pem", "--tls-key", "a b.pem", "--auth-file=auth"]
    assert main([*words.split(), *secure]) == 0
    unit = capfd.readouterr().out
    [command] = re.findall(r"^ExecStart=.* export (.*)$", unit, re.M)
    assert command == (
        f'--names=gputop,dcgm --listen=0.0.0.0:9400 --tls-cert={tmp_path}/cert.pem "--tls-key='
        f'{tmp_path}/a b.pem" --auth-file={tmp_path}/auth --no-users --interval=10'
    )
    assert "\nExecReload=/bin/kill -HUP $MAINPID\n" in unit
    assert "\nProtectSystem=strict\n" in unit
    assert main(["export", "--unit", "--textfile", "metrics"]) == 0
    unit = capfd.readouterr().out
    assert f" export --names=gputop --textfile={tmp_path}/metrics --interval=5\n" in unit
    assert "\nProtectSystem=full\n" in unit, "strict would not let it write there"


# What is said


@pytest.mark.system
def test_once_where_there_is_no_driver(machine: MachineFactory) -> None:
    done = machine("no-driver").run([*GPUTOP, "export", "--once"])
    assert done.returncode == 3
    assert "\ngputop_up 0.0\n" in done.stdout
    assert 'gputop_problem{kind="driver_not_loaded"} 1.0' in done.stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-H a export", "-H is not an option of gputop export"),
        ("export --once --listen [::1]:1", "--listen cannot be used with --once"),
        ("export --textfile /tmp --tls-cert x", "--tls-cert cannot be used with --textfile"),
        ("export --tls-key x", "TLS needs --tls-cert"),
        ("export --tls-cert /dev/null", "TLS with /dev/null is not possible"),
        ("export --names dcgm --processes", "--processes needs gputop in --names"),
        ("export --names dcgm,nvitop", "'dcgm,nvitop' is not gputop, dcgm or gputop,dcgm"),
        ("export --unit --once", "--unit cannot be used with --once"),
        ("--demo export --listen 192.0.2.1:1", "cannot listen on 192.0.2.1:1"),
    ],
)
def test_errors_are_a_line(words: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) in (1, 2)
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert error in err


def test_without_prometheus_client(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith("gputop.export.prometheus")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["--demo", "export"]) == 1
    assert capfd.readouterr().err == (
        "gputop: gputop export needs prometheus_client: pip install 'gputop-tui[prometheus]',"
        " in a clone '.[prometheus]'\n"
    )


@pytest.mark.system
def test_who_works_here_is_not_told_to_everybody_unsaid() -> None:
    command = [*GPUTOP, "--demo", "export", "--listen", "0.0.0.0:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "http://0.0.0.0:" in process.stderr.readline()
        assert "can read who works here" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
