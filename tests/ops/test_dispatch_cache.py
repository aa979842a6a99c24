"""What an op remembers: one kernel for each identity and device, built once, bounded, under threads too."""

from __future__ import annotations

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tileops.kernels import device_facts
from tileops.kernels.device_facts import DeviceFacts, faked, is_current, running_on
from tileops.ops import dispatch


def by_parity(cls: Any, call: Any) -> Any:
    """One build for even n and one for odd n."""
    return call.n % 2, lambda: cls(call)


def test_the_same_identity_gives_the_same_object(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel(entry_for=classmethod(by_parity))})()
    device = two_devices[0]
    two, four, five = (op.kernel_for("toy", toys.Call(n=n, device=device)) for n in (2, 4, 5))
    assert two is four
    assert two is not five
    assert op.kernel_for("toy", toys.Call(n=4, device=torch.device("cuda", 0))) is two
    assert len(toys.built) == 2


def test_the_whole_call_is_the_identity_where_a_kernel_says_none(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    first = op.kernel_for("toy", toys.Call(n=1, device=two_devices[0]))
    assert op.kernel_for("toy", toys.Call(n=1, device=two_devices[0])) is first
    assert op.kernel_for("toy", toys.Call(n=2, device=two_devices[0])) is not first


def test_classes_with_one_identity_have_kernels_of_their_own(toys: Any, two_devices: Any) -> None:
    entry_for = classmethod(lambda cls, call: (0, lambda: cls(call)))
    small = toys.kernel("Small", serves=lambda c: c.n < 8, entry_for=entry_for)
    large = toys.kernel("Large", serves=lambda c: c.n >= 8, entry_for=entry_for)
    op = toys.op({"small": small, "large": large})()
    assert type(op.kernel_for("toy", toys.Call(n=1, device=two_devices[0]))) is small
    assert type(op.kernel_for("toy", toys.Call(n=9, device=two_devices[0]))) is large


def test_two_interfaces_of_one_class_share_its_kernels(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()}, {"toy": toys.Interface, "again": toys.Interface})()
    call = toys.Call(device=two_devices[0])
    assert op.kernel_for("toy", call) is op.kernel_for("again", call)


def test_rules_and_builders_see_the_facts_of_the_calls_own_device(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    for device in two_devices:
        op.kernel_for("toy", toys.Call(n=5, device=device))
    assert [(c.arch, c.sm_count, c.smem_budget, c.device) for c in toys.built] == [
        (90, 132, 232448, two_devices[0]),
        (80, 108, 166912, two_devices[1]),
    ]


def test_facts_are_none_off_cuda(toys: Any) -> None:
    op = toys.op({"one": toys.kernel(devices=frozenset({"cpu"}))})()
    op.kernel_for("toy", toys.Call(device=torch.device("cpu")))
    (call,) = toys.built
    assert (call.arch, call.sm_count, call.smem_budget) == (None, None, None)


def test_two_devices_of_one_identity_have_kernels_of_their_own(toys: Any, two_devices: Any) -> None:
    entry_for = classmethod(lambda cls, call: (call.n, lambda: cls(call)))
    op = toys.op({"one": toys.kernel(entry_for=entry_for)})()
    first, second = (op.kernel_for("toy", toys.Call(n=1, device=device)) for device in two_devices)
    assert first is not second
    assert (first.launch_device, second.launch_device) == two_devices


def test_builder_tuning_and_launch_run_with_the_calls_device_current(toys: Any, two_devices: Any) -> None:
    seen: list[tuple[str, bool]] = []
    device = two_devices[1]

    def note(what: str) -> None:
        seen.append((what, is_current(device)))

    kernel = toys.kernel(
        __init__=lambda self, call: note("build"),
        request_tune=lambda self: note("tune"),
        forward=lambda self, x: note("launch"),
    )
    op = toys.op({"one": kernel})()
    op.request_tune()
    op.kernel_for("toy", toys.Call(device=device))(1)
    assert seen == [("build", True), ("tune", True), ("launch", True)]
    assert not is_current(device)
    with running_on(device):
        op.kernel_for("toy", toys.Call(n=1, device=device))
    assert seen[3:] == [("build", True), ("tune", True)]


def test_a_cuda_device_without_an_index_is_the_current_one_each_time(toys: Any, two_devices: Any) -> None:
    op = toys.op({"hopper": toys.kernel("Hopper", supported_archs=[90]), "any": toys.kernel("Any", general=True)})()
    call = toys.Call(device=torch.device("cuda"))
    here = op.kernel_for("toy", call)
    with running_on(two_devices[1]):
        there = op.kernel_for("toy", call)
    assert (type(here).__name__, here.launch_device) == ("Hopper", two_devices[0])
    assert (type(there).__name__, there.launch_device) == ("Any", two_devices[1])
    assert op.kernel_for("toy", call) is here
    assert op.kernel_for("toy", toys.Call(device=two_devices[0])) is here


def test_a_hit_asks_no_rule_and_reads_no_device(toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op = toys.op({"one": toys.kernel(serves=lambda c: c.n < 100)})()
    kernel = op.kernel_for("toy", toys.Call(n=1, device=two_devices[0]))

    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("a hit came this far")

    monkeypatch.setattr(op._dispatcher, "miss", unexpected)
    monkeypatch.setattr(device_facts, "device_facts", unexpected)
    monkeypatch.setattr(dispatch, "device_facts", unexpected)
    assert op.kernel_for("toy", toys.Call(n=1, device=two_devices[0])) is kernel


def test_device_properties_are_read_once_for_each_device(toys: Any) -> None:
    reads: list[torch.device] = []

    def reader(device: torch.device) -> DeviceFacts:
        reads.append(device)
        return DeviceFacts(90, 132, 232448)

    device_facts.set_reader(reader)
    try:
        op = toys.op({"one": toys.kernel()})()
        for n in range(20):
            op.kernel_for("toy", toys.Call(n=n, device=torch.device("cuda", n % 2)))
    finally:
        device_facts.set_reader(None)
    assert sorted(map(str, reads)) == ["cuda:0", "cuda:1"]


def test_a_build_that_fails_leaves_nothing_and_is_tried_again(toys: Any, two_devices: Any) -> None:
    attempts: list[int] = []

    def build(self: Any, call: Any) -> None:
        attempts.append(call.n)
        if len(attempts) == 1:
            raise RuntimeError("no compiler")

    op = toys.op({"one": toys.kernel(__init__=build)})()
    call = toys.Call(n=3, device=two_devices[0])
    with pytest.raises(RuntimeError, match="no compiler"):
        op.kernel_for("toy", call)
    info = op.cache_info()
    assert (info.calls, info.entries, info.builds) == (0, 0, 0)
    assert op.kernel_for("toy", call) is op.kernel_for("toy", call)
    assert attempts == [3, 3]


def test_key_for_and_explain_neither_read_nor_fill_the_call_cache(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    call = toys.Call(n=3, device=two_devices[0])
    assert op.key_for("toy", call) == "one"
    assert op.explain("toy", call).winner == "one"
    assert op.cache_info() == dispatch.CacheInfo(0, 0, 0, 0, 0, 0)
    op.kernel_for("toy", call)
    op._calls.clear()
    op._calls["toy", call] = None
    assert op.key_for("toy", call) == "one"


class TestThreads:
    def test_a_build_happens_once(self, toys: Any, two_devices: Any) -> None:
        started = threading.Event()

        def build(self: Any, call: Any) -> None:
            toys.built.append(call)
            started.wait(0.2)

        op = toys.op({"one": toys.kernel(__init__=build, entry_for=classmethod(by_parity))})()
        gate = threading.Barrier(16)

        def ask(i: int) -> Any:
            gate.wait()
            return op.kernel_for("toy", toys.Call(n=2 * i, device=two_devices[0]))

        with ThreadPoolExecutor(16) as pool:
            kernels = list(pool.map(ask, range(16)))
        assert len({id(kernel) for kernel in kernels}) == 1
        assert len(toys.built) == 1

    def test_a_build_blocks_neither_hits_nor_other_builds(self, toys: Any, two_devices: Any) -> None:
        building, release = threading.Event(), threading.Event()

        def build(self: Any, call: Any) -> None:
            if call.n == 1:
                building.set()
                assert release.wait(30)

        op = toys.op({"one": toys.kernel(__init__=build)})()
        known = toys.Call(n=0, device=two_devices[0])
        kernel = op.kernel_for("toy", known)
        slow = threading.Thread(target=op.kernel_for, args=("toy", toys.Call(n=1, device=two_devices[0])))
        slow.start()
        try:
            assert building.wait(30)
            assert op.kernel_for("toy", known) is kernel
            op.kernel_for("toy", toys.Call(n=2, device=two_devices[0]))
            assert slow.is_alive()
        finally:
            release.set()
            slow.join(30)

    def test_threads_that_wait_for_a_build_that_fails_build_themselves(self, toys: Any, two_devices: Any) -> None:
        attempts: list[int] = []

        def build(self: Any, call: Any) -> None:
            attempts.append(1)
            time.sleep(0.02)
            if len(attempts) == 1:
                raise RuntimeError("first one fails")

        op = toys.op({"one": toys.kernel(__init__=build, entry_for=classmethod(by_parity))})()
        call = toys.Call(device=two_devices[0])
        gate = threading.Barrier(8)

        def ask(_: int) -> Any:
            gate.wait()
            try:
                return op.kernel_for("toy", call)
            except RuntimeError as error:
                return str(error)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(8)))
        assert answers.count("first one fails") == 1
        built = {id(a) for a in answers if not isinstance(a, str)}
        built.add(id(op.kernel_for("toy", toys.Call(n=2, device=two_devices[0]))))
        assert len(built) == 1
        assert len(attempts) == 2

    def test_constructing_in_many_threads_checks_once(self, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from tileops.ops import selection

        composed: list[Any] = []
        compose = selection._compose

        def counted(*arguments: Any) -> Any:
            composed.append(arguments)
            time.sleep(0.02)
            return compose(*arguments)

        monkeypatch.setattr(selection, "_compose", counted)
        op = toys.op({"one": toys.kernel()})
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: op(), range(16)))
        assert len({id(each._dispatcher.selection) for each in made}) == 1
        assert len(composed) == 1


class TestTunedMode:
    def test_built_and_later_kernels_are_asked_once_each(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel()})()
        early = op.kernel_for("toy", toys.Call(n=1, device=two_devices[0]))
        assert toys.tuned == []
        op.request_tune()
        assert toys.tuned == [early]
        late = op.kernel_for("toy", toys.Call(n=2, device=two_devices[1]))
        op.request_tune()
        op.kernel_for("toy", toys.Call(n=1, device=two_devices[0]))
        assert toys.tuned == [early, late]

    def test_it_concerns_one_op_object(self, toys: Any, two_devices: Any) -> None:
        kind = toys.op({"one": toys.kernel()})
        tuned, plain = kind(), kind()
        tuned.request_tune()
        plain.kernel_for("toy", toys.Call(device=two_devices[0]))
        assert toys.tuned == []

    def test_a_kernel_that_is_being_built_meanwhile_is_asked_once(self, toys: Any, two_devices: Any) -> None:
        building, release = threading.Event(), threading.Event()

        def build(self: Any, call: Any) -> None:
            building.set()
            assert release.wait(30)

        op = toys.op({"one": toys.kernel(__init__=build)})()
        builder = threading.Thread(target=op.kernel_for, args=("toy", toys.Call(device=two_devices[0])))
        builder.start()
        assert building.wait(30)
        tuner = threading.Thread(target=op.request_tune)
        tuner.start()
        release.set()
        builder.join(30)
        tuner.join(30)
        assert len(toys.tuned) == 1

    def test_a_tuning_that_fails_is_asked_for_again(self, toys: Any, two_devices: Any) -> None:
        asked: list[int] = []

        def request_tune(self: Any) -> None:
            asked.append(1)
            if len(asked) == 1:
                raise RuntimeError("clock")

        op = toys.op({"one": toys.kernel(request_tune=request_tune)})()
        op.kernel_for("toy", toys.Call(device=two_devices[0]))
        with pytest.raises(RuntimeError, match="clock"):
            op.request_tune()
        op.request_tune()
        op.request_tune()
        assert len(asked) == 2


class TestBounds:
    def test_calls_are_bounded_and_the_oldest_quarter_goes(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel(entry_for=classmethod(by_parity))})()
        for n in range(dispatch.MOST_CALLS + 1):
            op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
        assert op.cache_info().calls == dispatch.MOST_CALLS * 3 // 4 + 1
        before = op.cache_info().misses
        op.kernel_for("toy", toys.Call(n=dispatch.MOST_CALLS - 1, device=two_devices[0]))
        assert op.cache_info().misses == before
        op.kernel_for("toy", toys.Call(n=0, device=two_devices[0]))
        assert op.cache_info().misses == before + 1
        assert op.cache_info().builds == 2

    def test_entries_are_bounded_and_no_call_leads_to_a_dropped_one(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel()})()
        for n in range(3 * dispatch.MOST_ENTRIES):
            op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
            assert op.cache_info().entries <= dispatch.MOST_ENTRIES
        info = op.cache_info()
        assert info.builds == 3 * dispatch.MOST_ENTRIES
        assert info.evictions == info.builds - info.entries
        held = {id(entry.kernel) for entry in op._dispatcher._entries.values()}
        assert {id(kernel) for kernel in op._calls.values()} <= held

    def test_a_kernel_dropped_while_its_call_is_on_the_way_is_not_remembered(
        self, toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        op = toys.op({"one": toys.kernel(entry_for=classmethod(by_parity))})()
        op.kernel_for("toy", toys.Call(n=0, device=two_devices[0]))
        found = op._dispatcher._entry

        def found_then_dropped(*arguments: Any) -> Any:
            answer = found(*arguments)
            op._dispatcher._evict()
            return answer

        monkeypatch.setattr(op._dispatcher, "_entry", found_then_dropped)
        dropped = op.kernel_for("toy", toys.Call(n=2, device=two_devices[0]))
        monkeypatch.undo()
        assert op.cache_info().calls == 0
        again = op.kernel_for("toy", toys.Call(n=2, device=two_devices[0]))
        assert again is not dropped
        assert op.kernel_for("toy", toys.Call(n=0, device=two_devices[0])) is again

    def test_a_kernel_in_use_outlives_any_number_of_builds(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel()})()
        steady = toys.Call(n=0, device=two_devices[0])
        kernel = op.kernel_for("toy", steady)
        for n in range(1, 4 * dispatch.MOST_ENTRIES):
            op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
            assert op.kernel_for("toy", steady) is kernel

    def test_memory_is_constant_over_distinct_lengths(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel(__init__=lambda self, call: None, entry_for=classmethod(by_parity))})()

        def ask(lengths: range) -> int:
            for n in lengths:
                op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            full = ask(range(2 * dispatch.MOST_CALLS))
            later = ask(range(2 * dispatch.MOST_CALLS, 8 * dispatch.MOST_CALLS))
        finally:
            tracemalloc.stop()
        assert later < 1.1 * full + 65536


def test_nothing_is_logged_at_a_miss(toys: Any, two_devices: Any, caplog: Any, capfd: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    op.kernel_for("toy", toys.Call(device=two_devices[0]))
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_a_builder_that_hands_one_kernel_to_two_devices_is_refused(toys: Any, two_devices: Any) -> None:
    shared: list[Any] = []

    def entry_for(cls: Any, call: Any) -> Any:
        def build() -> Any:
            shared[:] = shared or [cls(call)]
            return shared[0]

        return call.n, build

    op = toys.op({"one": toys.kernel(entry_for=classmethod(entry_for))})()
    op.kernel_for("toy", toys.Call(device=two_devices[0]))
    with pytest.raises(TypeError, match="the builder for cuda:1"):
        op.kernel_for("toy", toys.Call(device=two_devices[1]))


def test_a_call_spec_with_slots_is_resolved_whole(toys: Any) -> None:
    import dataclasses

    from tileops.kernels.call_spec import CallSpec
    from tileops.ops.resolving import resolve

    @dataclasses.dataclass(frozen=True, slots=True)
    class SlottedCall(CallSpec):
        n: int = 0
        m: int = 0

    call = SlottedCall(n=3, m=4, arch=90)
    resolved = resolve(call)
    assert resolved == SlottedCall(n=3, m=4, device=torch.device("cuda"))
    assert (resolved.arch, resolved.sm_count, resolved.smem_budget) == (90, 132, 227 * 1024)


def test_what_a_call_cached_before_it_was_resolved_is_not_taken_over() -> None:
    import dataclasses
    import functools

    from tileops.kernels.call_spec import CallSpec
    from tileops.ops.resolving import resolve

    @dataclasses.dataclass(frozen=True)
    class CachingCall(CallSpec):
        n: int = 0

        @functools.cached_property
        def fits(self) -> bool:
            return self.smem_budget is not None and self.n <= self.smem_budget

    call = CachingCall(n=3, arch=90)
    assert not call.fits
    assert resolve(call).fits


def test_faked_devices_do_not_outlive_their_block() -> None:
    with faked({torch.device("cuda", 3): DeviceFacts(90, 1, 1)}):
        assert device_facts.device_facts(torch.device("cuda", 3)).sm_count == 1
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            device_facts.device_facts(torch.device("cuda", 3))
