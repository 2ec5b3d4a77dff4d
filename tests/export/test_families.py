"""A frame as metrics: which there are, what they are called, and when there are none."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gputop.errors import SourceError
from gputop.export.prometheus.exposition import DCGM, OWN, Exposition, Scope
from gputop.export.prometheus.people import MOST_PROCESSES, MOST_TOLD_APART, OTHERS, UNKNOWN
from gputop.manual import page
from gputop.model.health.free import ObjectionCode
from gputop.model.machine.frame import Frame, Problem
from gputop.model.machine.gpu import MigDevice, SlurmJob
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.sections import (
    Activity,
    Ecc,
    Health,
    Identity,
    Pcie,
    Power,
    Throttle,
    Xid,
)
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from tests.builders import GIB, frame, gpu, process

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]
OF_0 = {"gpu": "0", "uuid": "GPU-0"}


def samples(message: Frame | None, *names: str, now: float = 2000.0, **scope: bool) -> Samples:
    """The values by name and labels, as Prometheus' own reader has them."""
    exposition = Exposition(lambda: now, Scope(frozenset(names or {OWN}), **scope))
    if message is not None:
        exposition.put(message)
    return read(exposition.text().decode())


def read(text: str) -> Samples:
    values: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = values.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, "Prometheus refuses a page that says something twice"
            series[labels] = sample.value
    return values


def of(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def only(values: Samples, name: str) -> float:
    (value,) = values[name].values()
    return value


# The names


def test_names_are_prometheus_and_nobody_has_two() -> None:
    of_gpus = [metric.prometheus for metric in GPU.values()]
    of_processes = [metric.prometheus for metric in COLUMNS.values()]
    names = [name for name in of_gpus + of_processes if name is not None]
    assert len(names) == len(set(names)) > 80
    assert [name for name in names if not re.fullmatch(r"gputop_[a-z0-9_]+", name)] == []


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("utilization", "gputop_gpu_utilization_ratio"),
        ("memory_used", "gputop_gpu_memory_used_bytes"),
        ("temperature", "gputop_gpu_temperature_celsius"),
        ("power_more.average", "gputop_gpu_power_average_watts"),
        ("power_more.energy", "gputop_gpu_power_energy_joules_total"),
        ("sm_clock", "gputop_gpu_sm_clock_hertz"),
        ("pcie.tx", "gputop_gpu_pcie_tx_bytes_per_second"),
        ("pcie.replays", "gputop_gpu_pcie_replays_total"),
        ("idle_for", "gputop_gpu_idle_for_seconds"),
        ("persistence_mode", "gputop_gpu_persistence_mode"),
        ("index", None),
        ("activity.doing", None),
    ],
)
def test_a_name_is_the_id_and_its_base_unit(id_: str, name: str | None) -> None:
    assert GPU[id_].prometheus == name


def test_every_metric_is_on_its_page() -> None:
    card = gpu(
        health=Health(xids=(Xid(79, 1.0),)), throttle=Throttle(), mig=(MigDevice(gi=1, ci=0),)
    )
    on_it = [process(7, origin=Origin(pod="p"), gpu_memory=1, sm_utilization=0.1)]
    problem = Problem(code="no_gpu", text="", advice="")
    exposed = samples(frame([card], on_it), processes=True) | samples(
        Frame(host=frame().host, time=1, problem=problem)
    )
    named = set(re.findall(r"`(gputop_\w+)`", page("prometheus")))
    names = [name for name in exposed if not name.startswith(("gputop_mig_", "gputop_host_"))]
    assert [name for name in names if name not in named] == []
    assert [name for name in named - set(exposed) if name.startswith("gputop_user")] == []
    assert [kind for kind in get_args(ObjectionCode) if f"`{kind}`" not in page("prometheus")] == []


# Values


def test_values_are_in_base_units_and_what_is_unknown_is_absent() -> None:
    busy = gpu(
        utilization=0.97, memory_used=98 * GIB, temperature=None, persistence_mode=True,
        power_more=Power(energy=1500.0), pcie=Pcie(replays=3),
    )  # fmt: skip
    values = samples(frame([busy]))
    assert values["gputop_gpu_utilization_ratio"] == {of(OF_0): 0.97}
    assert values["gputop_gpu_memory_used_bytes"] == {of(OF_0): 98 * GIB}
    assert values["gputop_gpu_persistence_mode"] == {of(OF_0): 1}
    assert values["gputop_gpu_power_energy_joules_total"] == {of(OF_0): 1500}
    assert values["gputop_gpu_pcie_replays_total"] == {of(OF_0): 3}
    assert "gputop_gpu_temperature_celsius" not in values
    assert "gputop_gpu_fan_ratio" not in values


def test_identity_is_in_info() -> None:
    card = gpu(2, pci_bus_id="00000000:17:00.0", minor=5, identity=Identity(serial="165"))
    (labels,) = samples(frame([card]))["gputop_gpu_info"]
    assert dict(labels) == {
        "uuid": "GPU-2", "gpu": "2", "model": "NVIDIA H200", "minor": "5", "serial": "165",
        "pci_bus_id": "00000000:17:00.0",
    }  # fmt: skip


def test_a_gpu_that_hangs_does_not_look_idle() -> None:
    hung = gpu(1, utilization=0.0, memory_used=0, stale_for=63.0)
    busy = process(7, 1, gpu_memory=GIB)
    values = samples(frame([gpu(), hung], [busy]), now=2002.0)
    of_1 = of({"gpu": "1", "uuid": "GPU-1"})
    assert values["gputop_gpu_up"] == {of(OF_0): 1, of_1: 0}
    assert values["gputop_gpu_reading_age_seconds"] == {of(OF_0): 2, of_1: 65}
    assert values["gputop_reading_age_seconds"] == {frozenset(): 2}
    assert values["gputop_gpu_free"] == {of(OF_0): 1}
    assert values["gputop_gpu_not_free"] == {of_1 | {("reason", "silent")}: 1}
    alarm = {("level", "error"), ("code", "HUNG")}
    assert values["gputop_gpu_findings"] == {of_1 | alarm: 1}
    allowed = {"info", "up", "reading_age_seconds", "free", "not_free", "findings"}
    of_hung = {name.removeprefix("gputop_gpu_") for name, series in values.items()
               if any(of_1 <= labels for labels in series)}  # fmt: skip
    assert of_hung <= allowed


def test_a_gpu_that_is_lost() -> None:
    values = samples(frame([gpu(error="GPU is lost", utilization=None)]))
    assert values["gputop_gpu_up"] == values["gputop_gpu_free"] == {of(OF_0): 0}
    assert "gputop_gpu_reading_age_seconds" not in values
    assert of({**OF_0, "level": "error", "code": "LOST"}) in values["gputop_gpu_findings"]


@pytest.mark.parametrize(
    ("fields", "asleep", "known"),
    [
        ({}, 0, 1),
        ({"listed": "ours"}, 0, 0),
        ({"listed": "none"}, 0, 0),
        ({"listed": "unknown", "state": "asleep"}, 1, None),
    ],
)
def test_whether_it_sleeps_and_lists_all(
    fields: dict[str, Any], asleep: int, known: int | None
) -> None:
    values = samples(frame([gpu(**fields)]))
    assert values["gputop_gpu_up"] == {of(OF_0): 1}
    assert values["gputop_gpu_asleep"] == {of(OF_0): asleep}
    expected = {} if known is None else {of(OF_0): known}
    assert values.get("gputop_gpu_processes_known", {}) == expected


@pytest.mark.parametrize("names", [OWN, DCGM])
def test_nothing_is_said_of_gpus_while_the_driver_cannot_be_read(names: str) -> None:
    problem = Problem(code="driver_not_loaded", text="no", advice="do")
    for exposed in (
        samples(None, names),
        samples(Frame(host=frame().host, time=1, problem=problem)),
    ):
        assert only(exposed, "gputop_up") == 0
        assert [name for name in exposed if name.startswith(("gputop_gpu", "DCGM"))] == []
    assert exposed["gputop_problem"] == {of({"kind": "driver_not_loaded"}): 1}


def test_a_source_that_broke_takes_its_values_along() -> None:
    exposition = Exposition(lambda: 2000.0, Scope())
    exposition.put(frame())
    assert only(read(exposition.text().decode()), "gputop_up") == 1
    exposition.put(SourceError("it ended"))
    values = read(exposition.text().decode())
    assert only(values, "gputop_up") == 0
    assert "gputop_gpu_info" not in values
    assert only(values, "gputop_reading_timestamp_seconds") == 2000
    exposition.put(frame())
    values = read(exposition.text().decode())
    assert (only(values, "gputop_up"), only(values, "gputop_readings_total")) == (1, 2)


def test_a_text_is_made_once_a_second_at_most() -> None:
    now = [2000.0]
    exposition = Exposition(lambda: now[0], Scope())
    exposition.put(frame())
    first = exposition.text()
    now[0] = 2000.9
    assert exposition.text() is first
    now[0] = 2001.1
    assert exposition.text() is not first
    now[0] = 1000.0
    assert b"gputop_reading_age_seconds 0.0" in exposition.text()


# Free, findings, what holds the clocks back


def test_why_a_gpu_is_not_free() -> None:
    gpus = [gpu(), gpu(1), gpu(2, listed="none"), gpu(3, utilization=0.5)]
    values = samples(frame(gpus, [process(7, 1)]))
    free = {dict(labels)["gpu"]: value for labels, value in values["gputop_gpu_free"].items()}
    assert free == {"0": 1, "1": 0, "3": 0}
    reasons = {(dict(labels)["gpu"], dict(labels)["reason"])
               for labels in values["gputop_gpu_not_free"]}  # fmt: skip
    assert reasons == {("1", "users"), ("2", "unlisted"), ("3", "work")}


def test_findings_and_xids() -> None:
    xids = (Xid(79, 1990.0), Xid(13, 1995.0), Xid(79, 1999.0))
    sick = gpu(ecc_uncorrected=2, ecc=Ecc(remap_failure=True), health=Health(xids=xids))
    values = samples(frame([sick]))
    codes = {(dict(labels)["level"], dict(labels)["code"])
             for labels in values["gputop_gpu_findings"]}  # fmt: skip
    assert {("error", "XID 79"), ("error", "ECC"), ("error", "REMAP")} <= codes
    assert ("warning", "XID 13") in codes
    times = values["gputop_gpu_xid_timestamp_seconds"]
    assert times == {of({**OF_0, "xid": "79"}): 1999, of({**OF_0, "xid": "13"}): 1995}


def test_every_reason_that_holds_the_clocks_back_is_0_or_1() -> None:
    values = samples(frame([gpu(throttle=Throttle(reasons=("sw_power_cap",)))]))
    held = values["gputop_gpu_throttled"]
    assert {dict(labels)["reason"] for labels, value in held.items() if value} == {"sw_power_cap"}
    assert len(held) == 8
    assert "gputop_gpu_throttled" not in samples(frame())


def test_mig_devices() -> None:
    device = MigDevice(
        uuid="MIG-1", gi=7, ci=0, profile="1g.18gb", memory_total=16 * GIB, memory_used=GIB // 64,
        activity=Activity(graphics=0.0),
    )  # fmt: skip
    card = gpu(mig_mode=True, utilization=None, mig=(device,))
    values = samples(frame([card]))
    labels = {**OF_0, "gi": "7", "ci": "0"}
    info = {"mig_uuid": "MIG-1", "profile": "1g.18gb"}
    assert values["gputop_mig_info"] == {of({**labels, **info}): 1}
    assert values["gputop_mig_memory_total_bytes"] == {of(labels): 16 * GIB}
    assert values["gputop_mig_activity_graphics_ratio"] == {of(labels): 0}
    assert values["gputop_mig_free"] == {of(labels): 1}
    assert values["gputop_gpu_free"] == {of(OF_0): 0}


# Who


def test_sums_by_user_and_by_job() -> None:
    slurm = Origin(slurm_job="4711", slurm_step="0", container=Container(id="c" * 64))
    processes = [
        process(1, gpu_memory=GIB, sm_utilization=0.5, origin=slurm),
        process(2, gpu_memory=2 * GIB, sm_utilization=0.25, origin=slurm),
        process(3, gpu_memory=None, user="bob", sm_utilization=None,
                origin=Origin(container=Container(id="d" * 64, name="jupyter"))),
        process(4, user=None, gpu_memory=GIB),
        process(5, type="G", user="carol", gpu_memory=GIB),
    ]  # fmt: skip
    values = samples(frame(processes=processes))
    alice, job = {**OF_0, "user": "alice"}, {"kind": "slurm", "id": "4711"}
    assert values["gputop_user_processes"] == {
        of(alice): 2, of({**OF_0, "user": "bob"}): 1, of({**OF_0, "user": UNKNOWN}): 1,
    }  # fmt: skip
    assert values["gputop_user_gpu_memory_bytes"][of(alice)] == 3 * GIB
    assert of({**OF_0, "user": "bob"}) not in values["gputop_user_gpu_memory_bytes"]
    assert values["gputop_user_sm_utilization_ratio"] == {of(alice): 0.75}
    assert values["gputop_job_gpu_memory_bytes"] == {of({**alice, **job}): 3 * GIB}
    jupyter = {**OF_0, "user": "bob", "kind": "container", "id": "jupyter"}
    assert values["gputop_job_processes"][of(jupyter)] == 1
    assert "gputop_process_info" not in values


def test_a_crowd_makes_no_more_series() -> None:
    """A thousand users and jobs, and processes whose names are hostile."""
    crowd = [
        process(n, user=f"user{n}", gpu_memory=n, origin=Origin(pod=f"pod{n}"),
                command=f'evil\n"{n}\\{"x" * 5000}\u202e', start_time=None)
        for n in range(1, 1001)
    ]  # fmt: skip
    values = samples(frame(processes=crowd), processes=True)
    users = {dict(labels)["user"] for labels in values["gputop_user_processes"]}
    assert len(users) == MOST_TOLD_APART + 1
    assert {"user1000", OTHERS} <= users
    others = of({**OF_0, "user": OTHERS})
    assert values["gputop_user_processes"][others] == 1000 - MOST_TOLD_APART
    assert sum(values["gputop_user_gpu_memory_bytes"].values()) == sum(range(1, 1001))
    assert len(values["gputop_job_processes"]) == MOST_TOLD_APART + 1
    assert len(values["gputop_process_info"]) == MOST_PROCESSES
    assert only(values, "gputop_processes_left_out") == 1000 - MOST_PROCESSES
    texts = [text for labels in values["gputop_process_info"] for _, text in labels]
    assert max(map(len, texts)) <= 128
    assert [text for text in texts if not text.isprintable()] == []


def test_processes_are_told_apart() -> None:
    job = Origin(slurm_job="4711")
    twice = [
        process(7, n, gpu_memory=GIB, sm_utilization=0.5, origin=job, gpu_instance=n or None)
        for n in (0, 1)
    ]
    values = samples(frame([gpu(), gpu(1)], [*twice, twice[0]]), processes=True)
    first = {**OF_0, "pid": "7"}
    more = {"user": "alice", "type": "C", "command": "train.py", "job_kind": "slurm",
            "job_id": "4711"}  # fmt: skip
    assert values["gputop_process_info"][of({**first, **more})] == 1
    second = {"gpu": "1", "uuid": "GPU-1", "pid": "7", "gi": "1"}
    assert values["gputop_process_gpu_memory_bytes"] == {of(first): GIB, of(second): GIB}
    assert values["gputop_process_sm_utilization_ratio"][of(first)] == 0.5


def test_no_secret_of_a_command_line_is_published() -> None:
    command = "/usr/bin/python3 -m serve --api-key hush --port 80"
    values = samples(frame([gpu()], [process(7, command=command)]), processes=True)
    (labels,) = values["gputop_process_info"]
    assert dict(labels)["command"] == "serve --api-key *** --port 80"


def test_no_name_that_a_person_chose_is_published() -> None:
    container = Container("c" * 64, "docker", "alice-jupyter", image="alice/secret")
    in_pod = Container("d" * 64, "cri-o", "vllm", pod="alice-0", namespace="team-alice")
    processes = [
        process(1, user="alice", gpu_memory=GIB, origin=Origin(slurm_job="4711")),
        process(2, user="alice", gpu_memory=GIB, origin=Origin(container=container)),
        process(3, user="alice", gpu_memory=GIB, origin=Origin(pod="0a1b", container=in_pod)),
        process(4, user="alice", command="/home/alice/train.py"),
    ]
    here = frame([gpu(utilization=0.5, slurm_job=SlurmJob(number="4711", user="alice"))], processes)
    assert "alice" in str(samples(here))
    assert "alice" in str(samples(here, DCGM))
    values = samples(here, OWN, DCGM, named=False, processes=True)
    assert "alice" not in str(values)
    assert [name for name in values if name.startswith("gputop_user_")] == []
    assert only(values, "gputop_gpu_users") == 1
    jobs = {dict(labels)["id"] for labels in values["gputop_job_processes"]}
    assert jobs == {"4711", "c" * 12, "0a1b"}
    assert {dict(labels)["pid"] for labels in values["gputop_process_info"]} == set("1234")


def test_what_the_exporter_itself_takes() -> None:
    """Not by default: node_exporter, which takes the file, has the same names of its own."""
    own = {name for name in samples(frame(), itself=True) if name.startswith("process_")}
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= own
    assert [name for name in samples(frame()) if name.startswith("process_")] == []


# As dcgm-exporter


def test_names_labels_and_units_of_dcgm_exporter() -> None:
    card = gpu(
        3, minor=2, pci_bus_id="00000000:17:00.0", utilization=0.97, memory_used=98 * GIB + 1,
        temperature=61.0, power=540.5, sm_clock=1_980_000_000, power_more=Power(energy=1.5),
        activity=Activity(tensor=0.46, graphics=0.99), health=Health(xids=(Xid(79, 1.0),)),
    )  # fmt: skip
    values = samples(frame([card]), DCGM)
    (labels,) = values["DCGM_FI_DEV_GPU_UTIL"]
    assert dict(labels) == {
        "gpu": "3", "UUID": "GPU-3", "pci_bus_id": "00000000:17:00.0", "device": "nvidia2",
        "modelName": "NVIDIA H200", "Hostname": "node", "hostname": "node",
    }  # fmt: skip
    wanted = {
        "DEV_GPU_UTIL": 97, "DEV_FB_USED": 98 * 1024, "DEV_GPU_TEMP": 61, "DEV_SM_CLOCK": 1980,
        "DEV_POWER_USAGE": 540.5, "DEV_TOTAL_ENERGY_CONSUMPTION": 1500,
        "PROF_PIPE_TENSOR_ACTIVE": 0.46, "PROF_GR_ENGINE_ACTIVE": 0.99, "DEV_XID_ERRORS": 79,
    }  # fmt: skip
    assert {name: only(values, f"DCGM_FI_{name}") for name in wanted} == wanted
    (error,) = values["DCGM_FI_DEV_XID_ERRORS"]
    assert dict(error)["err_code"] == "79"
    assert "bus" in dict(error)["err_msg"]
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in values
    assert [name for name in values if name.startswith("gputop_gpu")] == ["gputop_gpu_up"]
    stale = samples(frame([gpu(stale_for=9.0)]), DCGM)
    assert [name for name in stale if name.startswith("DCGM")] == []
    assert only(stale, "gputop_gpu_up") == 0


def test_both_names_are_what_each_has() -> None:
    here = frame([gpu(utilization=0.5), gpu(1, error="GPU is lost")], [process(7)])
    both = samples(here, OWN, DCGM)
    assert both == samples(here) | samples(here, DCGM)


def jobs_of(message: Frame, **scope: bool) -> list[dict[str, str]]:
    """The labels of dcgm-exporter's that name a job, of each series of a metric."""
    series = samples(message, DCGM, **scope)["DCGM_FI_DEV_GPU_UTIL"]
    about = {"hpc_job", "pod", "pod_uid", "namespace", "container"}
    return [{name: text for name, text in labels if name in about} for labels in series]


def test_the_jobs_of_a_gpu_as_dcgm_exporter_names_them() -> None:
    """A series for each job; what belongs to none is not counted twice."""
    container = Container("c" * 64, "containerd", "vllm", pod="llama-0", namespace="ml")
    in_pod = Origin(pod="0a1b", container=container)
    pod = {"pod_uid": "0a1b", "pod": "llama-0", "namespace": "ml", "container": "vllm"}
    busy, slurm = gpu(utilization=0.5), Origin(slurm_job="4711", slurm_step="0")
    docker = process(3, origin=Origin(container=Container("d" * 64, "docker", "alice")))
    assert jobs_of(frame([busy])) == jobs_of(frame([busy], [docker])) == [{}]
    mixed = [process(1, origin=slurm), process(2, origin=slurm), docker, process(4, origin=in_pod)]
    assert jobs_of(frame([busy], mixed)) == [{"hpc_job": "4711"}, pod]
    assert jobs_of(frame([busy], mixed), named=False) == [{"hpc_job": "4711"}, {"pod_uid": "0a1b"}]
    held = gpu(utilization=0.5, slurm_job=SlurmJob(number="4711", user="alice"))
    assert jobs_of(frame([held])) == jobs_of(frame([held], mixed[:1])) == [{"hpc_job": "4711"}]
    crowd = [process(n, origin=Origin(slurm_job=str(n))) for n in range(1, 100)]
    assert len(jobs_of(frame([busy], crowd))) == MOST_TOLD_APART


def test_the_jobs_of_a_slice_are_its_own() -> None:
    card = gpu(utilization=0.5, mig_mode=True, mig=tuple(MigDevice(gi=n, ci=0) for n in (1, 2)))
    on_it = [process(7, origin=Origin(slurm_job="4711"), gpu_instance=2, compute_instance=0)]
    series = samples(frame([card], on_it), DCGM)["DCGM_FI_DEV_GPU_UTIL"]
    jobs = {labels["GPU_I_ID"]: labels.get("hpc_job") for labels in map(dict, series)}
    assert jobs == {"1": None, "2": "4711"}


def test_mig_as_dcgm_exporter() -> None:
    """A series for each GPU instance, be there two compute instances in it."""
    device: dict[str, Any] = {"gi": 7, "profile": "1c.2g.35gb", "memory_total": 4 * GIB}
    first = MigDevice(ci=0, memory_used=GIB, activity=Activity(graphics=0.5), **device)
    second = MigDevice(ci=1, memory_used=GIB, activity=Activity(graphics=0.5), **device)
    card = gpu(mig_mode=True, mig=(first, second), temperature=50.0)
    values = samples(frame([card]), DCGM)
    (labels,) = values["DCGM_FI_DEV_FB_USED"]
    assert {("GPU_I_ID", "7"), ("GPU_I_PROFILE", "2g.35gb")} <= labels
    assert only(values, "DCGM_FI_DEV_FB_USED") == 1024
    assert only(values, "DCGM_FI_DEV_FB_FREE") == 3 * 1024
    assert only(values, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == 0.5
    assert only(values, "DCGM_FI_DEV_GPU_TEMP") == 50
