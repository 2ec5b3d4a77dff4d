"""What TensorFlow, JAX and torchrun select among the GPUs that are visible."""

import pytest

from gputop.model.cuda.frameworks import (
    LogicalDevice,
    jax_visible_devices,
    local_rank,
    tf_logical_devices,
    tf_set_visible_devices,
    tf_visible_device_list,
)
from tests.model.test_visibility_vectors import Vector, answer, named, vectors

GIB = 1024**3


@named(vectors("tf_visible_device_list", "tf_set_visible_devices", "tf_logical"))
def test_published_case(vector: Vector) -> None:
    visible = answer(vector).visible
    assert visible is not None
    if vector["layer"] == "tf_logical":
        limits = {k: [GIB] * n for k, n in enumerate(vector["tf_logical_counts"])}
        logical = tf_logical_devices(range(len(visible)), limits)
        assert [visible[device.ordinal].index for device in logical] == vector["expect"]
        return
    if vector["layer"] == "tf_set_visible_devices":
        chosen = ",".join(map(str, vector["tf_set_visible"]))
        found = tf_set_visible_devices(chosen, len(visible))
    else:
        found = tf_visible_device_list(vector["tf_visible_device_list"], len(visible))
    if vector["expect"] is None:
        assert (found.ordinals, found.error) == (None, vector["reason"])
        assert found.message
    else:
        assert found.ordinals is not None
        assert [visible[ordinal].index for ordinal in found.ordinals] == vector["expect"]


@pytest.mark.parametrize(
    ("text", "ordinals", "error"),
    [
        ("", (0, 1), None),
        (" 1 ,+0", (1, 0), None),
        ("2", None, "tf_error_range"),
        ("-1", None, "tf_error_range"),
        ("1,1,9", None, "tf_error_range"),
        ("1,1", None, "tf_error_duplicate"),
        ("0,", None, "tf_error_parse"),
        ("1x", None, "tf_error_parse"),
        ("１", None, "tf_error_parse"),
        ("99999999999", None, "tf_error_parse"),
    ],
)
def test_a_bad_entry_of_tensorflows_list_is_an_error(
    text: str, ordinals: tuple[int, ...] | None, error: str | None
) -> None:
    found = tf_visible_device_list(text, 2)
    assert (found.ordinals, found.error) == (ordinals, error)


def test_the_order_given_to_set_visible_devices_does_not_matter() -> None:
    assert tf_set_visible_devices("2,0", 3).ordinals == (0, 2)
    assert tf_visible_device_list("2,0", 3).ordinals == (2, 0)
    assert tf_set_visible_devices("", 3).ordinals == ()
    assert tf_set_visible_devices("3", 3).error == "tf_error_range"
    assert tf_set_visible_devices("1,1", 3).error == "tf_error_duplicate"


@pytest.mark.parametrize(
    ("text", "ordinals", "error"),
    [
        ("all", (0, 1, 2), None),
        ("2, 0", (0, 2), None),
        ("GPU-1", None, "jax_error_parse"),
        ("", None, "jax_error_parse"),
        ("0,3", None, "jax_error_range"),
    ],
)
def test_jax(text: str, ordinals: tuple[int, ...] | None, error: str | None) -> None:
    found = jax_visible_devices(text, 3)
    assert (found.ordinals, found.error) == (ordinals, error)


def test_logical_devices_are_named_over_the_visible_gpus() -> None:
    assert tf_logical_devices([1, 0], {1: [GIB, GIB]}) == (
        LogicalDevice("/device:GPU:0", 1, GIB),
        LogicalDevice("/device:GPU:1", 1, GIB),
        LogicalDevice("/device:GPU:2", 0),
    )


def test_torchrun() -> None:
    assert [local_rank(rank, 2).ordinals for rank in (0, 1, 2)] == [(0,), (1,), None]
    wrong = local_rank(2, 2)
    assert wrong.error == "no_such_device"
    assert "no GPU 2 among the 2" in wrong.message
    assert "at most 2 workers" in wrong.message
    assert local_rank(1, 1).message.endswith(". Start at most 1 worker")
    assert local_rank(0, 0).message.endswith("'CUDA error: invalid device ordinal'")
