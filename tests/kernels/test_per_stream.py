"""What is kept for a stream: one thing for each, no more than so many, made anew where it is not enough."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from tileops.kernels import per_stream
from tileops.kernels.per_stream import of_stream

DEVICE, OTHER = torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """The current stream of the first device, whose number a test sets; the other device stays on stream 7."""
    current = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(per_stream, "_stream_now", lambda index: (current.cuda_stream, 7)[index])
    return current


def test_the_stream_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def current_stream(index: int) -> types.SimpleNamespace:
        asked.append(index)
        return types.SimpleNamespace(cuda_stream=10 + index)

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(per_stream, "_stream_now", per_stream._stream_from_torch)
    kept: dict[Any, object] = {}
    for device in (DEVICE, OTHER):
        of_stream(kept, device, object)
    assert (asked, list(kept)) == ([0, 1], [(DEVICE, 10), (OTHER, 11)])


def test_a_launch_on_another_stream_of_another_device_moves_nothing(stream: types.SimpleNamespace) -> None:
    kept: dict[Any, object] = {}
    first = of_stream(kept, OTHER, object)
    stream.cuda_stream = 5
    assert of_stream(kept, OTHER, object) is first


def test_a_stream_of_a_device_has_one_thing_and_others_have_others(stream: types.SimpleNamespace) -> None:
    kept: dict[Any, object] = {}
    first = of_stream(kept, DEVICE, object)
    assert of_stream(kept, DEVICE, object) is first
    assert of_stream(kept, OTHER, object) is not first
    stream.cuda_stream = 1
    assert of_stream(kept, DEVICE, object) is not first
    stream.cuda_stream = 0
    assert of_stream(kept, DEVICE, object) is first


def test_what_is_not_enough_is_made_anew_and_then_kept(stream: types.SimpleNamespace) -> None:
    kept: dict[Any, list[int]] = {}
    assert of_stream(kept, DEVICE, lambda: [0] * 4, lambda each: len(each) >= 4) == [0] * 4
    more = of_stream(kept, DEVICE, lambda: [0] * 9, lambda each: len(each) >= 9)
    assert len(more) == 9
    assert of_stream(kept, DEVICE, list, lambda each: len(each) >= 4) is more


def test_of_too_many_streams_the_oldest_goes(stream: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_stream, "MOST_KEPT", 3)
    kept: dict[Any, int] = {}
    for number in range(4):
        stream.cuda_stream = number
        assert of_stream(kept, DEVICE, lambda: number) == number  # noqa: B023 - asked at once
    stream.cuda_stream = 1
    assert of_stream(kept, DEVICE, lambda: -1) == 1
    stream.cuda_stream = 0
    assert of_stream(kept, DEVICE, lambda: -1) == -1
