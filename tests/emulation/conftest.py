"""An emulator for the tests of this folder, and kernels that are built and launched through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.emulation.harness import Emulator
from tileops.kernels import per_stream
from tileops.kernels.attention.gqa import decode_kernel, prefill


@pytest.fixture(scope="session")
def only_emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """One emulator with all that it has built."""
    reason = Emulator.missing()
    if reason is not None:
        pytest.skip(reason)
    return Emulator(tmp_path_factory.mktemp("emulator"))


@pytest.fixture
def emulator(only_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The emulator, in the place of compiler and GPU; torch has one thread, as more would wait for small tensors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for module in (decode_kernel, prefill):
        monkeypatch.setattr(module, "compile_program", only_emulator.compile_program)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(per_stream, "_stream_now", lambda index: 0)
    yield only_emulator
    torch.set_num_threads(threads)
