"""What frameworks call the k-th visible device."""

import pytest

from gputop.model.cuda.frameworks import FRAMEWORKS, MAIN, device_name


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("pytorch", "cuda:3"),
        ("tensorflow", "/device:GPU:3"),
        ("tensorflow1", "/gpu:3"),
        ("jax", "CudaDevice(id=3)"),
        ("cupy", "cupy.cuda.Device(3)"),
        ("numba", "cuda.gpus[3]"),
        ("onnxruntime", "device_id=3"),
        ("llama_cpp", "CUDA3"),
        ("vllm", "cuda:3"),
    ],
)
def test_name_of_a_logical_device(framework: str, name: str) -> None:
    assert device_name(framework, 3) == name


def test_every_framework_has_its_own_id_and_names_its_devices_apart() -> None:
    assert len({framework.id for framework in FRAMEWORKS}) == len(FRAMEWORKS)
    assert set(MAIN) <= {framework.id for framework in FRAMEWORKS}
    for framework in FRAMEWORKS:
        assert len({device_name(framework.id, k) for k in range(12)}) == 12


def test_an_unknown_framework_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        device_name("caffe", 0)
