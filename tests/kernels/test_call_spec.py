from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.norm.call_spec import LayerNormCall


def test_a_call_shows_only_what_it_states() -> None:
    assert repr(AttentionCall()) == "AttentionCall()"
    call = AttentionCall(heads=32, heads_kv=4, dtype=torch.bfloat16, arch=90)
    assert repr(call) == "AttentionCall(arch=90, heads=32, heads_kv=4, dtype=torch.bfloat16)"


def test_a_shown_call_evaluates_to_an_equal_one() -> None:
    call = LayerNormCall(n=7, eps=0.5, device=torch.device("cuda", 1))
    names = {"LayerNormCall": LayerNormCall, "device": torch.device, "torch": torch}
    assert eval(repr(call), names) == call


def test_a_value_equal_to_the_default_but_of_another_type_is_shown() -> None:
    assert repr(AttentionCall(batch=True)) == "AttentionCall(batch=True)"


def test_a_spec_with_its_own_repr_keeps_it() -> None:
    @dataclasses.dataclass(frozen=True)
    class Terse(CallSpec):
        n: int = 0

        def __repr__(self) -> str:
            return "terse"

    assert repr(Terse(n=1)) == "terse"


def test_a_field_without_default_is_always_shown() -> None:
    @dataclasses.dataclass(frozen=True)
    class Sized(CallSpec):
        n: int
        names: tuple[str, ...] = dataclasses.field(default_factory=tuple)

    assert repr(Sized(0)).endswith("Sized(n=0)")
    assert repr(Sized(0, ("a",))).endswith("Sized(n=0, names=('a',))")


def test_the_facts_of_the_device_take_no_part_in_equality() -> None:
    stated = LayerNormCall(n=8, arch=90, sm_count=132, smem_budget=1)
    assert stated == LayerNormCall(n=8)
    assert hash(stated) == hash(LayerNormCall(n=8))
    assert stated != LayerNormCall(n=8, device=torch.device("cuda", 0))


def test_a_call_spec_is_itself_a_call_and_is_immutable() -> None:
    call = CallSpec()
    assert call == CallSpec()
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.device = torch.device("cpu")  # type: ignore[misc]


def test_building_a_call_checks_nothing() -> None:
    assert AttentionCall(heads=[1]).heads == [1]  # type: ignore[arg-type,comparison-overlap]
    assert LayerNormCall(n=-3).n == -3


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"batch": 0}, "batch 0"),
        ({"heads": 0}, "heads 0"),
        ({"heads_kv": 0}, "heads_kv 0"),
        ({"heads": 6, "heads_kv": 4}, "heads 6 is not a multiple of heads_kv 4"),
        ({"dim": 0}, "dim 0"),
        ({"max_seqlen_q": 0}, "max_seqlen_q 0"),
        ({"seqlen_kv": -1}, "seqlen_kv -1"),
        ({"softcap": -1.0}, "softcap -1.0"),
        ({"softcap": math.inf}, "softcap inf"),
        ({"softcap": 1e-30}, "softcap 1e-30"),
        ({"sm_scale": 2.0**40}, "sm_scale 1099511627776.0"),
        ({"softcap": math.nan}, "softcap nan"),
        ({"sm_scale": math.inf}, "sm_scale inf"),
        ({"sm_scale": math.nan}, "sm_scale nan"),
        ({"window_size_left": -2}, "window_size_left -2"),
        ({"window_size_right": -2}, "window_size_right -2"),
        ({"fuse_rope": True}, "rotary_dim 0 is not an even number from 2 to dim 64"),
        ({"fuse_rope": True, "rotary_dim": 66}, "rotary_dim 66"),
        ({"fuse_rope": True, "rotary_dim": 7}, "rotary_dim 7"),
        ({"rotary_dim": 8}, "rotary_dim 8 is not 0, and fuse_rope is not set"),
        ({"rope_interleaved": True}, "rope_interleaved is set, and fuse_rope is not"),
        ({"fuse_rope": True, "rotary_dim": 8, "is_fp8": True}, "fuse_rope and is_fp8"),
        ({"fuse_rope": True, "rotary_dim": 8, "max_seqlen_q": 3}, "max_seqlen_q 3 is more than seqlen_kv 1"),
    ],
)
def test_an_attention_call_that_cannot_be_says_why(fields: dict[str, object], named: str) -> None:
    reason = AttentionCall(**fields).invalid()  # type: ignore[arg-type]
    assert reason is not None
    assert named in reason


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seqlen_kv": 0},
        {"heads": 28, "heads_kv": 4},
        {"sm_scale": -1.0},
        {"softcap": 30.0},
        {"window_size_left": 0},
        {"fuse_rope": True, "rotary_dim": 64, "rope_interleaved": True},
        {"is_fp8": True},
    ],
)
def test_an_attention_call_that_can_be_is_valid(fields: dict[str, object]) -> None:
    assert AttentionCall(**fields).invalid() is None  # type: ignore[arg-type]


def test_a_row_of_a_negative_length_is_no_call_and_an_empty_one_is() -> None:
    assert LayerNormCall(n=-1).invalid() == "n -1 is negative"
    assert LayerNormCall(n=0).invalid() is None


def test_decode_is_one_query_that_sees_every_key() -> None:
    assert AttentionCall().dense_decode_region
    assert AttentionCall(is_causal=True).dense_decode_region, "the only query stands at the last key"
    assert AttentionCall(window_size_right=0).dense_decode_region, "no key stands to its right"
    assert not AttentionCall(max_seqlen_q=2).dense_decode_region
    assert not AttentionCall(window_size_left=4).dense_decode_region
    assert not AttentionCall(is_fp8=True).dense_decode_region


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted(CallSpec):
    n: int = 1
    names: tuple[str, ...] = dataclasses.field(default_factory=tuple)


@dataclasses.dataclass(frozen=True)
class Numbered(CallSpec):
    n: int = 1
    version: int = dataclasses.field(default=7, init=False)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Slotted(), "Slotted()"),
        (Slotted(3, ("a",), arch=90), "Slotted(arch=90, n=3, names=('a',))"),
        (Numbered(3), "Numbered(n=3)"),
        (Numbered(), "Numbered()"),
    ],
)
def test_the_text_of_a_call_with_slots_or_fields_that_are_not_given(call: CallSpec, text: str) -> None:
    assert repr(call) == text
