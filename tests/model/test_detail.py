"""Which variables are told, and that secrets never are."""

from __future__ import annotations

import time

import pytest

from gputop.model.machine.detail import env_variables, kind_of

TOKEN = "hf_AbcdEfghIjklMnopQrstUvwx1234"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("wandb_api_key", "x"),
        ("HF_TOKEN", ""),
        ("MYSQL_PWD", "x"),
        ("PGPASSWORD", "x"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("SENTRY_DSN", "x"),
        ("SESSION_COOKIE", "x"),
        ("SSL_PRIVATE", "x"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/key.json"),
        ("VLLM_API_KEY", "x"),  # of a framework, and a secret all the same
        ("DB", "postgres://user:hunter2@host/db"),
        ("INDEX", "https://ghtoken@pypi.example/simple"),
        ("RAY_ADDRESS", "redis://:hunter2@head:6379"),
        ("CUDA_NOTE", TOKEN),
        ("NOTE", "5f4dcc3b5aa765d61d8327deb882cf99"),
        ("NOTE", "AbCdEfGhIj/KlMn0pQrS/tUvWxYz"),
        ("NOTE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig"),
        ("ARGS", "--password hunter2"),
        ("JSON", '{"token": "abc"}'),
        ("PEM", "-----BEGIN RSA PRIVATE KEY-----"),
        ("CUDA_VISIBLE_DEVICES", f"GPU-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500,{TOKEN}"),
    ],
)
def test_secrets(name: str, value: str) -> None:
    assert kind_of(name, value) == "secret"
    [variable] = env_variables({name: value}, hidden=True)
    assert (variable.name, variable.value) == (name, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("CUDA_VISIBLE_DEVICES", "GPU-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500"),
        ("CUDA_VISIBLE_DEVICES", "MIG-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500,GPU-4e017c1a"),
        ("CUDA_VISIBLE_DEVICES", "MIG-GPU-4e007c1a-90b3-5d2e-8f44-a1b2c3d4e500/1/0"),
        ("CUDA_HOME", "/usr/local/cuda-12.4"),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12.4 brand=tesla,driver>=470,driver<471"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=true"),
        ("SLURM_JOB_NODELIST", "gpu-node-[001-004,017]"),
        ("SLURM_JOB_ID", "4711"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("MASTER_ADDR", "ip-10-0-12-7.eu-west-1.compute.internal"),
        ("OMP_NUM_THREADS", "8"),
        ("LOCAL_RANK", "1"),
    ],
)
def test_of_gpus_and_jobs(name: str, value: str) -> None:
    assert kind_of(name, value) == "gpu"
    [variable] = env_variables({name: value}, hidden=False)
    assert variable.value == value


def test_the_values_of_others_are_told_where_they_are_asked_for() -> None:
    variables = {"PATH": "/usr/bin:/bin", "LANG": "C", "RANK": "0"}
    assert [hidden_device.value for hidden_device in env_variables(variables, hidden=False)] == [
        None,
        None,
        "0",
    ]
    assert [hidden_device.value for hidden_device in env_variables(variables, hidden=True)] == [
        "C",
        "/usr/bin:/bin",
        "0",
    ]


def test_they_are_harmless_to_print_and_not_too_many() -> None:
    strange = {"RANK": "\x1b[2J\n\u202e\udcff", "\x1b]0;x\x07": "y"}
    assert {
        (hidden_device.name, hidden_device.value)
        for hidden_device in env_variables(strange, hidden=True)
    } == {
        ("RANK", "�[2J���"),
        ("�]0;x�", "y"),
    }
    many = env_variables({f"N{n}": "v" * 9999 for n in range(2000)}, hidden=True)
    assert len(many) < 1000
    assert all(len(variable.value or "") < 2000 for variable in many)


@pytest.mark.parametrize(
    "value", ["BEGIN " * 20000, "://" * 40000, "1" * 100000, "a-" * 60000, "GPU-" * 30000, "A1" * 9]
)
def test_no_value_takes_long(value: str) -> None:
    """The agent's threads share one interpreter: a slow search would delay its frames."""
    started = time.thread_time()
    kind_of("NOTE", value)
    assert time.thread_time() - started < 0.5
