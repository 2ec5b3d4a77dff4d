"""What /proc/PID/cgroup says, in the forms that runtimes, the kubelet, Slurm and systemd write."""

from __future__ import annotations

import pytest

from gputop.model.machine.cgroup import parse_cgroup
from gputop.model.machine.origin import Container, Origin

ID = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"
OTHER = "ec08435e04266c5ba381fccbb829f626d11d8ddf5f8f547263c7a2d79ab4787a"
UID = "74ba62da-1a3d-11e7-bb11-080027cb0e22"
SLICE = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"


def v1(path: str) -> str:
    """A text of version 1: a line for each hierarchy."""
    names = ("name=systemd", "hugetlb", "memory", "cpu,cpuacct", "devices")
    return "".join(f"{n}:{name}:{path}\n" for n, name in enumerate(names, 1))


def docker(pod: str | None = None, unit: str | None = None) -> Origin:
    return Origin(container=Container(ID, "docker"), pod=pod, unit=unit)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        (v1(f"/docker/{ID}"), docker()),
        (v1(f"/system.slice/docker-{ID}.scope"), docker()),
        (f"0::/system.slice/docker-{ID}.scope\n", docker()),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope\n",
         docker(unit="user@1000.service")),
        (v1(f"/docker/{OTHER}/docker/{ID}"), docker()),
        (f"0::/system.slice/docker-{OTHER}.scope/docker/{ID}\n", docker()),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n",
         Origin(container=Container(ID, "podman"))),
        (f"0::/user.slice/user-501.slice/user@501.service/user.slice/libpod-{ID}.scope\n",
         Origin(container=Container(ID, "podman"), unit="user@501.service")),
        (v1(f"/libpod_parent/libpod-{ID}"), Origin(container=Container(ID, "podman"))),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
         Origin(unit=f"libpod-conmon-{ID}.scope")),
        (f"0::/system.slice/nerdctl-{ID}.scope\n", Origin(container=Container(ID, "containerd"))),
        (v1(f"/kubepods/besteffort/pod{UID}/{ID}"), Origin(container=Container(ID), pod=UID)),
        (v1(f"/kubepods/besteffort/pod{UID}/{ID}/kube-proxy"),
         Origin(container=Container(ID), pod=UID)),
        (v1(f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/docker-{ID}.scope"),
         docker(pod=UID)),
        (f"0::/kubepods.slice/kubepods-besteffort.slice/{SLICE}/cri-containerd-{ID}.scope\n",
         Origin(container=Container(ID, "containerd"), pod=UID)),
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope\n",
         Origin(container=Container(ID, "cri-o"), pod=UID)),
        (f"0::/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}\n",
         Origin(container=Container(ID, "containerd"), pod=UID, unit="containerd.service")),
        (f"0::/../cri-containerd-{ID}.scope\n", Origin(container=Container(ID, "containerd"))),
        ("10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n1:name=systemd:/\n",
         Origin(slurm_job="280678", slurm_step="interactive")),
        ("0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0\n",
         Origin(slurm_job="1392969", slurm_step="0", unit="slurmstepd.scope")),
        ("0::/system.slice/node7_slurmstepd.scope/job_4/step_batch/user/task_special\n",
         Origin(slurm_job="4", slurm_step="batch", unit="node7_slurmstepd.scope")),
        ("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n",
         Origin(slurm_step="0", unit="slurmstepd.scope")),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", Origin(unit="session-3.scope")),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome.scope\n",
         Origin(unit="app-gnome.scope")),
        ("3:cpu,cpuacct:/user.slice\n1:name=systemd:/system.slice/ollama.service\n0::/\n",
         Origin(unit="ollama.service")),
        ("0::/home/job_7/step_1\n", Origin()),
        ("0::/\n", Origin()),
        (v1("/"), Origin()),
        ("", Origin()),
        ("nonsense\n0::\n::::\n", Origin()),
    ],
)  # fmt: skip
def test_parse(text: str, origin: Origin) -> None:
    assert parse_cgroup(text) == origin


def test_names_of_units_are_harmless() -> None:
    """systemd escapes them; whoever may make a group need not."""
    assert parse_cgroup("0::/evil\x1b[31m.service\n").unit == "evil\ufffd[31m.service"


def test_a_job_is_written_as_sacct_writes_it() -> None:
    assert Origin(slurm_job="4711", slurm_step="0").job == "4711.0"
    assert Origin(slurm_job="4711").job == "4711"
    assert Origin(slurm_step="0").job is None


def test_a_container_is_called_by_its_name_if_that_is_known() -> None:
    assert Container(ID).label == ID[:12]
    assert Container(ID, name="vllm").label == "vllm"


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_no_group_of_a_users_own_passes_for_a_line(end: str) -> None:
    """Who may make groups below a job's chooses their names; the kernel refuses only newlines."""
    named = f"x{end}1:name=systemd:"
    found = parse_cgroup(f"4:freezer:/slurm/uid_1000/job_55/step_0/{named}/slurm/job_77/step_9\n")
    assert (found.slurm_job, found.slurm_step) == ("55", "0")
