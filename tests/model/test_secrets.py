"""Which names and values count as secrets, and which have to stay readable."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.machine.detail import env_variables, kind_of
from gputop.model.machine.secrets import is_secret, masked, masked_words

_NAMES = """
DB_PASS SSHPASS LDAP_PW PASS LOGIN RAY_REDIS_PASS VLLM_PW MYSQL_PWD PGPASSWORD DBPWD ROOTPW
PASSWD Passwort dbPassword db_pass1 SMTP_PASSWORD PASSPHRASE KEY_PASSPHRASE WANDB_API_KEY
wandbApiKey APIKEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN HF_TOKEN HUGGING_FACE_HUB_TOKEN
GITHUB_PAT GH_TOKEN GITLAB_TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY AZURE_STORAGE_KEY
AZURE_CLIENT_SECRET GOOGLE_APPLICATION_CREDENTIALS GCP_CREDS REDIS_AUTH RABBITMQ_COOKIE
ERLANG_COOKIE SESSION_COOKIE JWT SLURM_JWT SENTRY_DSN SSH_AUTH_SOCK PRIVATE_KEY SSL_PRIVATE
SIGNING_KEY ENCRYPTION_KEY VAULT_TOKEN NPM_TOKEN PYPI_TOKEN DOCKER_AUTH_CONFIG SLACK_WEBHOOK
NETRC PGPASSFILE HTPASSWD OTP_SEED MFA_PIN SALT CONN_STR SQL_CONNECTION_STRING KRB5CCNAME
NCCL_TOKEN CUDA_PASS RAY_AUTH_TOKEN VLLM_API_KEY MLFLOW_TRACKING_PASSWORD KAGGLE_KEY
COMET_API_KEY NEPTUNE_API_TOKEN AUTHORIZATION oauth2_secret BASIC_AUTH LOGON MY_CREDENTIAL
VAULT_ROLE_ID VAULT_SECRET_ID vaultRoleId ENCRYPTION_IV AES_IV NONCE MONKEY_KEY DEMON_KEY MONKEY_PW
"""
NAMES = _NAMES.split()
VALUES = {
    "user and password": "u:p4ss@db.example",
    "url": "postgres://alice:open-sesame@db/runs",
    "token in a url": "https://ghtoken@pypi.example/simple",
    "redis": "redis://:hunter2@head:6379",
    "proxy": "http://bob:x@proxy:3128/",
    "azure": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9v;EndpointSuffix=x",
    "sql server": "Server=db;Database=runs;Uid=alice;Pwd=hunter2;",
    "odbc": "DRIVER={x};UID=a;PWD = hunter2",
    "jdbc": "jdbc:mysql://db/x?user=a&password=b",
    "libpq": "host=db user=a password=b",
    "shared access": "SharedAccessKeyName=root;SharedAccessKey=abc",
    "sas": "https://x.blob.core.windows.net/c?sv=2020&sig=abc%3D",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig",
    "pem": "-----BEGIN RSA PRIVATE KEY-----",
    "openssh": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "aws id": "AKIAIOSFODNN7EXAMPLE",
    "aws secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "gcp": "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "gcp json": '{"type": "service_account", "private_key_id": "1"}',
    "google oauth": "GOCSPX-abcdef",
    "hugging face": "hf_AbcdEfghIjklMnop",
    "openai": "sk-proj-abcdefghijkl",
    "anthropic": "sk-ant-api03-abcdefgh",
    "stripe": "sk_live_abcdefghijkl",
    "github": "ghp_R4nd0mR4nd0m",
    "github fine": "github_pat_11ABCDE_x",
    "gitlab": "glpat-abcdef",
    "slack": "xoxb-1234-abcd",
    "slack hook": "https://hooks.slack.com/services/T0/B0/x",
    "npm": "npm_abcdefghijklmnop",
    "pypi": "pypi-AgEIcHlwaS5vcmc",
    "docker": "dckr_pat_abc",
    "nvidia": "nvapi-abc_def-ghi",
    "wandb": "5f4dcc3b5aa765d61d8327deb882cf995f4dcc3b",
    "hex": "5f4dcc3b5aa765d61d8327deb882cf99",
    "databricks": "dapi0123456789abcdef",
    "vault": "hvs.CAESIabcdefgh",
    "sendgrid": "SG.abcdefgh.ijkl",
    "telegram": "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
    "base64 of a login": "dXNlcjpwYXNz",
    "base64 of json": "eyJ1c2VyIjogImEiLCAicGFzcyI6ICJiIn0=",
    "base64": "AbCdEfGhIj/KlMn0pQrS/tUvWxYz",
    "random": "xK9mPq2vLr7T",
    "option": "--password hunter2",
    "option equals": "train.py --api-key=abc",
    "short option": "curl -u alice:hunter2 https://x",
    "sshpass": "sshpass -p x ssh y",
    "header": "Authorization: Basic YTpi",
    "bearer": "Bearer abc",
    "cookie": "sessionid=38afes7a8",
    "netrc": "machine x login a password b",
    "json": '{"token": "abc"}',
    "json auth": '{"auths": {"r": {"auth": "YTpi"}}}',
    "yaml": "pass: hunter2",
    "login": "login=alice:pw",
    "crypt": "$6$salt$hash",
    "env in env": "DB_PASS=hunter2",
    "uuid and token": "GPU-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500,hf_AbcdEfghIjklMnop",
}
UUID = "4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500"
READABLE = {
    "PATH": "/usr/local/cuda-12.4/bin:/home/alice/.local/bin:/usr/bin:/bin",
    "PWD": "/home/alice/my-secret-project",
    "OLDPWD": "/home/alice",
    "HOME": "/home/alice",
    "SHELL": "/bin/bash",
    "HOSTNAME": "node-07.cluster.example",
    "USER": "alice",
    "LANG": "en_US.UTF-8",
    "TERM": "xterm-256color",
    "EDITOR": "vim",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:so=01;35:*.tar=01;31:*.7z=01;31:su=37;41:sg=30;43",
    "PS1": r"\u@\h:\w\$ ",
    "CONDA_PROMPT_MODIFIER": "(base) ",
    "CONDA_DEFAULT_ENV": "pytorch-2.4",
    "CONDA_PREFIX": "/opt/conda/envs/py311",
    "VIRTUAL_ENV": "/home/alice/venv",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/nix/store/0c5q3n8r7w2x9y1z4a6b8d0f2g4h6-glibc/lib",
    "PYTHONPATH": "/srv/app",
    "SSH_CONNECTION": "10.0.0.5 51234 10.0.0.1 22",
    "SSH_TTY": "/dev/pts/3",
    "TMUX": "/tmp/tmux-1000/default,4242,0",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "GIT_COMMIT": "2a94025d0c1b3e5f7a9b8c6d4e2f0a1b3c5d7e9f",
    "GIT_AUTHOR_NAME": "Alice Example",
    "IMAGE_DIGEST": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "TOKENIZERS_PARALLELISM": "false",
    "MAX_TOKENS": "4096",
    "XKB_KEYBOARD": "us",
    "MODEL": "meta-llama/Llama-3.1-8B-Instruct",
    "HF_HOME": "/data/hf",
    "BYPASS": "1",
    "MONKEY": "1",
    "MONKEYPATCH": "all",
    "GEVENT_MONKEY": "all",
    "HOCKEY_TEAM": "Ajoie",
    "NODE_NAME": "gpu-a100-07",
    "MODULEPATH": "/etc/modulefiles:/usr/share/modules",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471",
    "CUDA_VISIBLE_DEVICES": f"GPU-{UUID},MIG-{UUID}",
    "SLURM_JOB_NODELIST": "gpu-node-[001-004,017]",
    "SLURM_JOB_USER": "alice",
    "SLURM_STEP_GPUS": "0,1,2,3",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.node",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1",
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "eth0",
    "MASTER_ADDR": "ip-10-0-12-7.eu-west-1.compute.internal",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
    "XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true",
    "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}',
    "RAY_ADDRESS": "10.0.0.1:6379",
    "VLLM_USE_V1": "1",
    "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMP_NUM_THREADS": "8",
    "WORLD_SIZE": "16",
}
WITHOUT_ASKING = {
    "CUDA_VISIBLE_DEVICES", "NVIDIA_REQUIRE_CUDA", "SLURM_JOB_NODELIST", "SLURM_STEP_GPUS",
    "NCCL_IB_HCA", "NCCL_DEBUG", "MASTER_ADDR", "TF_CONFIG", "RAY_ADDRESS", "VLLM_USE_V1",
    "WORLD_SIZE",
}  # fmt: skip


def test_the_table_is_no_shorter_than_it_was_asked_for() -> None:
    assert len(NAMES) + len(VALUES) + len(READABLE) >= 180


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets(name: str) -> None:
    """Whatever the value is; none of it is told, with `e` or without."""
    for value in ("hunter2", "", "x", "u:p", "correct horse battery"):
        assert kind_of(name, value) == "secret"
        assert [
            hidden_device.value for hidden_device in env_variables({name: value}, hidden=True)
        ] == [None]


@pytest.mark.parametrize("what", VALUES)
def test_values_that_are_secrets(what: str) -> None:
    """Whatever the name is, one of a framework as well."""
    for name in ("NOTE", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PATH", "PWD", "GIT_COMMIT_NOTE"):
        if (name, what) not in (("PWD", "base64"), ("PATH", "base64")):
            assert is_secret(name, VALUES[what]), name
    assert is_secret("NOTE", f"before {VALUES[what]} behind") or what.startswith("base64")


@pytest.mark.parametrize("name", READABLE)
def test_what_stays_readable(name: str) -> None:
    assert not is_secret(name, READABLE[name])
    assert [
        hidden_device.value for hidden_device in env_variables({name: READABLE[name]}, hidden=True)
    ] == [READABLE[name]]


def test_only_what_says_nothing_of_anybody_is_told_without_asking() -> None:
    found = {
        hidden_device.name
        for hidden_device in env_variables(READABLE, hidden=False)
        if hidden_device.value is not None
    }
    assert found >= WITHOUT_ASKING
    for name in ("CUDA_NOTE", "RAY_NOTE", "VLLM_NOTE", "SLURM_NOTE", "TF_NOTE", "TORCH_X", "PATH"):
        assert [
            hidden_device.value for hidden_device in env_variables({name: "my words"}, hidden=False)
        ] == [None]


@pytest.mark.system
def test_the_variables_of_a_login_shell_stay_readable() -> None:
    """Of a real one, with its real colours of ls."""
    env = {"HOME": os.environ.get("HOME", "/"), "PATH": os.environ["PATH"], "TERM": "xterm"}
    script = "eval $(dircolors -b 2>/dev/null); env -0"
    done = subprocess.run(["bash", "-lc", script], env=env, capture_output=True, check=True)
    pairs = [entry.partition("=") for entry in done.stdout.decode().split("\0") if entry]
    basics = {name: value for name, _, value in pairs if name in READABLE}
    assert basics.keys() >= {"PATH", "PWD", "HOME", "TERM"}
    assert [name for name, value in basics.items() if is_secret(name, value)] == []


@pytest.mark.parametrize(
    "name", ["APP_PASSCODE", "PINCODE", "HMAC", "Kennwort", "MOTDEPASSE", "DB_SENHA", "contrasena"]
)
def test_more_names_of_secrets(name: str) -> None:
    assert is_secret(name, "x1")


@given(st.text(max_size=300), st.text(max_size=5000))
def test_any_name_and_value_have_an_answer(name: str, value: str) -> None:
    assert is_secret(name, value) in (True, False)
    assert masked(value).count(" ") == value.count(" ")


@pytest.mark.parametrize(
    "piece",
    ["a", "A1", "1a", "key", "pass:", "://", "u:", "--", "-u ", "=", "eyJ", "-" * 9, "a:b@"],
)
def test_no_value_takes_long(piece: str) -> None:
    """Whoever runs a process chooses what is searched."""
    started = time.process_time()
    for text in (piece * 200_000, piece * 100 + "@" * 9999):
        is_secret("NOTE", text)
        is_secret(text, "x")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python train.py --lr 3e-4", "python train.py --lr 3e-4"),
        ("python train.py --password=x1 y", "python train.py --password=*** y"),
        ("serve --api-key sk-abc --port 80", "serve --api-key *** --port 80"),
        ("serve --api-key --port 80", "serve --api-key --port 80"),
        ("DB_PASS=x python a.py", "DB_PASS=*** python a.py"),
        ("curl -u a:b https://u:p@host/x", "curl -u *** ***"),
        ("python -u train.py -u x", "python -u train.py -u x"),
        ("git clone https://token@host/x", "git clone ***"),
        ("run hf_AbcdEfghIjklMnop", "run ***"),
        ("python /home/alice/x.py --config b.yaml", "python /home/alice/x.py --config b.yaml"),
        ("vllm serve meta-llama/Llama-3.1-8B --max-tokens 5", None),
        ("sshpass -p hunter2 ssh x", "sshpass -p *** ssh x"),
        ("sshpass -phunter2 ssh x", "sshpass -p*** ssh x"),
        ("/usr/bin/mysql -h db -phunter2 x", "/usr/bin/mysql -h db -p*** x"),
        ("redis-cli -a hunter2", "redis-cli -a ***"),
        ("ldapsearch -w hunter2 -x", "ldapsearch -w *** -x"),
        ("docker login -u alice -p hunter2 r.io", "docker login -u *** -p *** r.io"),
        ("7z x -phunter2 a.7z", "7z x -p*** a.7z"),
        ("openssl enc -k hunter2 -in f", "openssl enc -k *** -in f"),
        ("wandb login hunter2", "wandb login ***"),
        ("curl -H Authorization: Bearer hunter2 x", "curl -H *** Bearer *** x"),
        ("curl -H Authorization: hunter2 -H X-Api-Key: hi x", "curl -H *** *** -H *** *** x"),
        ("curl -H 'Cookie: a=b' {'pin': 'x', 'n': 3}", "curl -H 'Cookie: *** {'pin': *** 'n': 3}"),
        ("curl -H Content-Type: application/json -H key_dim: 64 x", None),
        ("jupyter lab --ServerApp.token hunter2", "jupyter lab --ServerApp.token ***"),
        ("x --model.key_dim 64 --optim.lr 3e-4", None),
        ("python x.py -p 8080 -k 3", None),
        ("python x.py --seed 0 seed=42 --data_seed=1234567890 --keyframes 3", None),
        ("python x.py --key-dim 64 --num-key-value-heads=8 --token-limit 4096", None),
        ("python x.py --auth-file x --private-key-path=/run/k --auth-mode basic", None),
        ("x --seed a-b --otp-seed 1 --key-seed 1", "x --seed *** --otp-seed *** --key-seed ***"),
        ("x --key 77 --token=1234 --pin 1234", "x --key *** --token=*** --pin ***"),
        ("x --auth-code 1234 --password 1234", "x --auth-code *** --password ***"),
        ("x --auth-file hf_AbcdEfghIjkl --key-dim hush", "x --auth-file *** --key-dim ***"),
    ],
)  # fmt: skip
def test_command_lines_without_secrets(command: str, shown: str | None) -> None:
    assert masked(command) == (shown or command)


@pytest.mark.parametrize(
    "arguments",
    [["--password", "hush hush"], ["--password=hush hush"], ["--api-key", "-hush hush"],
     ["sh", "-c", "redis-cli -a 'hush hush'"], ["sh", "-c", "wandb login hush"],
     ["curl", "-u", "me:hush hush"], ["curl", "-H", "Authorization: Bearer hush hush"],
     ["redis-cli", "-a", "hush hush"], ["mysql", "-phush hush"], ["DB_PASS=hush hush"],
     ["wandb", "login", "hush hush"], ["psql", "host=db password='hush hush'"],
     ["--note", "pw: hush hush"], ["env", "LDAP_PW=hush\nhush", "x"]],
)  # fmt: skip
def test_a_secret_with_blanks_is_masked_as_a_whole(arguments: list[str]) -> None:
    assert "hush" not in " ".join(masked_words(arguments))


def test_arguments_with_blanks_stay_readable() -> None:
    arguments = ["python", "train.py", "--name", "my first run", "--data", "/srv/my data/a b"]
    assert masked_words(arguments) == arguments
