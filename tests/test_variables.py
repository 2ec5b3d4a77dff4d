"""The variables that root keeps, where another user chose them, as under `sudo -E` and su."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.variables import foreign_sign
from tests.agent.driving import Json, children_of
from tests.agent.test_detail import start_ticks
from tests.browsers import command, serve
from tests.cluster.test_client import answering
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine, build
from tests.driver.machine import REPOSITORY
from tests.fuse import Fuse
from tests.patience import until
from tests.terminal import Terminal

pytestmark = [
    pytest.mark.system,
    needs_root,
]
GPUTOP = [sys.executable, "-m", "gputop"]
EVE = 4242
KEPT = """
import json, os
from gputop.variables import drop_untrusted
drop_untrusted(os.environ)
print(json.dumps(dict(os.environ)))
"""
ACTING = (
    "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSLKEYLOGFILE", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN", "LANGUAGE", "TZDIR", "LOCPATH",
    "TERMINFO", "NETRC", "BASH_ENV", "BROWSER", "TMPDIR", "TEMP", "TMP", "HOME", "XDG_CONFIG_HOME",
    "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_DIRS", "__NVML_DBG_FILE", "CUDA_LOG_FILE",
    "PYTHONWARNINGS", "TEXTUAL_LOG", "GPUTOP_LOCKS", "GPUTOP_OF_TOMORROW", "CUDA_HOME",
)  # fmt: skip
"""Variables with which a library loads code, writes a file or trusts an answer."""
MISUSED = {
    "LANG": "../../../eve", "LC_MESSAGES": "/eve/x", "TERM": "../eve", "TZ": ":/eve/zone",
    "COLUMNS": "20000", "LINES": "9" * 5000, "ROWS": "-1", "TERM_PROGRAM": "/eve",
    "XDG_CACHE_HOME": "eve", "CUDA_PATH": "/usr/../eve",
}  # fmt: skip
PLAIN = {
    "LANG": "en_US.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor",
    "TZ": "America/Argentina/Ushuaia", "NO_COLOR": "", "COLUMNS": "132", "LINES": "43",
    "CUDA_VISIBLE_DEVICES": "1,GPU-4e007c1a", "GPUTOP_THEME": "dark", "HOME": "/",
    "GPUTOP_LOCKS": "/tmp", "XDG_RUNTIME_DIR": "/run/none/there", "SSH_CONNECTION": "10.0.0.1 1",
}  # fmt: skip


@pytest.fixture
def eve(tmp_path: Path) -> Path:
    """A folder of another user's."""
    folder = tmp_path / "eve"
    folder.mkdir(mode=0o755)
    os.chown(folder, EVE, EVE)
    return folder


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0"}})


def kept(variables: dict[str, str], user: int = 0) -> Json:
    """What is left of these variables."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    done = subprocess.run([*become, python, "-c", KEPT], env=env, cwd="/", capture_output=True)
    assert done.returncode == 0, done.stderr
    left: Json = json.loads(done.stdout)
    return left


def test_what_acts_is_dropped(eve: Path) -> None:
    given = dict.fromkeys(ACTING, str(eve)) | MISUSED
    assert kept(given).keys().isdisjoint(given)


def test_what_is_plain_is_kept() -> None:
    assert kept(PLAIN).items() >= PLAIN.items()


def test_what_does_not_answer_is_kept_if_it_is_checked_again(tmp_path: Path) -> None:
    """Otherwise what is reserved there would pass for free."""
    names = "XDG_STATE_HOME", "GPUTOP_LOCKS", "XDG_CACHE_HOME", "CUDA_HOME"
    env = dict.fromkeys(names, f"{tmp_path}/below") | {"PYTHONPATH": str(REPOSITORY)}
    with (
        Fuse(tmp_path),  # whoever waits for it ends with it
        subprocess.Popen([sys.executable, "-c", KEPT], env=env, stdout=subprocess.PIPE) as done,
    ):
        assert done.stdout
        left = json.loads(done.stdout.readline())
    assert left.keys() & set(names) == {"XDG_STATE_HOME", "GPUTOP_LOCKS"}


def test_a_user_has_all_but_a_terminal_that_there_is_not(eve: Path) -> None:
    given = {"OPENSSL_CONF": str(eve), "TMPDIR": str(eve), "EDITOR": "ed", "COLUMNS": "80"}
    left = kept({**given, "LINES": "20000"}, EVE)
    assert left.items() >= given.items()
    assert "LINES" not in left


def test_a_variable_without_a_name(here: Machine) -> None:
    """Any program can pass one on; it ended gputop with a traceback."""
    pairs = [*(f"{name}={value}" for name, value in here.env.items()), "=x", "none"]
    code = f"""
import ctypes
array = lambda words: (ctypes.c_char_p * (len(words) + 1))(*map(str.encode, words), None)
words, pairs = {[*GPUTOP, "--once"]!r}, {pairs!r}
ctypes.CDLL(None).execve(words[0].encode(), array(words), array(pairs))
"""
    done = here.run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_agent_gets_none_of_them(here: Machine, eve: Path) -> None:
    env = {**here.env, **dict.fromkeys(ACTING, str(eve))}
    program = here.popen([*GPUTOP, "--json", "--watch"], env=env)
    assert program.stdout
    program.stdout.readline()
    [agent] = [pid for pid in children_of(program.pid) if b"agent" in command(pid)]
    entries = Path(f"/proc/{agent}/environ").read_bytes().decode().split("\0")
    assert {entry.partition("=")[0] for entry in entries}.isdisjoint(ACTING)


@rest_long("how", "command", "screen")
def test_no_module_of_hers_is_loaded_by_openssl(
    how: str, here: Machine, eve: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    code = tmp_path / "evil.c"
    code.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) void f(void)"
        f'{{ open("{ran}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    build.shared(code, eve / "evil.so")
    (eve / "openssl.cnf").write_text(
        "openssl_conf = init\n[init]\nproviders = all\n[all]\nevil = evil\ndefault = usual\n"
        f"[usual]\nactivate = 1\n[evil]\nmodule = {eve}/evil.so\nactivate = 1\n"
    )
    env = {**here.env, "OPENSSL_CONF": f"{eve}/openssl.cnf"}
    loads = [sys.executable, "-c", "import ssl; ssl.create_default_context()"]
    subprocess.run(loads, env=env, check=False, capture_output=True)
    assert ran.exists(), "this Python's OpenSSL reads it"
    ran.unlink()
    if how == "command":
        done = subprocess.run([*GPUTOP, "doctor"], env=env, capture_output=True, check=False)
        assert done.returncode in (0, 1)
    else:
        with Terminal(GPUTOP, cols=120, rows=30, env=env) as terminal:
            terminal.wait_for("? help")
    assert not ran.exists()


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_serve_has_no_socket_in_a_folder_of_hers(variable: str, here: Machine, eve: Path) -> None:
    here.env.update(XDG_RUNTIME_DIR="", TMPDIR="")
    here.env[variable] = str(eve)
    server, address = serve(here)
    assert address.startswith("http://127.0.0.1:")
    listing = Path(f"/proc/{server.pid}/net/unix").read_text()
    assert str(eve) not in listing
    assert list(eve.iterdir()) == []


def test_a_proxy_of_hers_sees_nothing(here: Machine, eve: Path) -> None:
    """Root's token would reach her; that of root's own environment is used."""
    with answering() as prometheus, answering() as proxy:
        words = [*GPUTOP, "free", "--prometheus", prometheus.url]
        env = {**here.env, "http_proxy": proxy.url, "no_proxy": "", "GPUTOP_PROMETHEUS_TOKEN": "t"}
        hers = {**env, "SUDO_UID": str(EVE), "SUDO_USER": "eve"}
        subprocess.run(words, env=hers, capture_output=True, check=False)
        assert proxy.asked == []
        assert prometheus.asked
        prometheus.asked.clear()
        subprocess.run(words, env=env, capture_output=True, check=False)
        assert bool(proxy.asked) is (foreign_sign() is None)


def test_who_started_it_shows_in_its_ancestors() -> None:
    """As su leaves it: root's process below one of hers."""
    code = f"""
import os
from gputop.variables import foreign_sign
reading, writing = os.pipe()
if os.fork():
    os.setgroups([]); os.setgid({EVE}); os.setuid({EVE})
    os.write(writing, b"!")
    os.wait()
else:
    os.read(reading, 1)
    print(foreign_sign(), flush=True)
"""
    env = {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.startswith("it was started from process "), done.stderr
    assert done.stdout.endswith(f" of user {EVE}\n")


def test_who_logged_in_is_known_to_the_proxies_and_to_the_audit_log() -> None:
    """Where pam_loginuid has set it, su and sudo leave it as it is."""
    code = f"""
from gputop.agent.signals.audit import _login
from gputop.variables import foreign_sign, login_uid
for login in ("0", "{EVE}"):
    with open("/proc/self/loginuid", "w") as file:
        file.write(login)
    print(login_uid(), _login(), foreign_sign())
"""
    env = {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    if "PermissionError" in done.stderr or "FileNotFoundError" in done.stderr:
        pytest.skip("no login can be set here: the kernel has no audit, or it is a container")
    nobody, hers = done.stdout.splitlines()
    assert nobody.startswith("0 root ")
    assert "login" not in nobody
    assert hers == f"{EVE} {EVE} the login is that of user {EVE}"


def test_a_kill_is_in_roots_own_log(here: Machine, eve: Path) -> None:
    """Whatever HOME she left. Her settings do not count either."""
    (eve / "gputop").mkdir()
    (eve / "gputop" / "config.toml").write_text("readonly = true\n")
    pid = here.spawn("train", ["train"])
    assert start_ticks(pid)
    env = {**here.env, "HOME": str(eve), "XDG_CONFIG_HOME": str(eve)}
    words = [*GPUTOP, "kill", str(pid), "--yes"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    log = Path(here.env["XDG_STATE_HOME"]) / "gputop" / "signals.jsonl"
    until(lambda: str(pid) in log.read_text())
