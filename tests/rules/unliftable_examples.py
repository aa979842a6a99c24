"""Rules of every kind that does not lift, with what the message names."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


from tests.rules.rule_examples import ALLOWED, SIZES, Base, Call

COUNTER = 0


def stores_global(call: Call) -> str | None:
    global COUNTER
    COUNTER = 1
    return None


def by_dict(call: Call) -> str | None:
    return SIZES[call.n]


def by_get(call: Call) -> str | None:
    return SIZES.get(call.n)


def over_range(call: Call) -> str | None:
    return None if sum(1 for _ in range(call.n)) > 3 else "few"


def asks_device(call: Call) -> str | None:
    return None if os.cpu_count() == 4 else "cores"


def asks_time(call: Call) -> str | None:
    return None if time.time() > 0 else "clock"


def log2(call: Call) -> str | None:
    return None if math.log2(call.n) < 4 else "long"


def converts(call: Call) -> str | None:
    return None if int(call.n) > 4 else "small"


def swallows(call: Call) -> str | None:
    try:
        int(call.n)
    except BaseException:  # noqa: BLE001 - what is tested
        return None
    return "never"


def replaces(call: Call) -> str | None:
    return None if dataclasses.replace(call, n=3).n == 3 else "no"


def hashes(call: Call) -> str | None:
    return None if hash(call) else "no"


def float_arithmetic(call: Call) -> str | None:
    return None if call.eps * 2 > 1 else "small"


def unknown_set(call: Call) -> str | None:
    return None if call.n in set(itertools.chain(ALLOWED, (1,))) else "no"


def odd_mask(call: Call) -> str | None:
    return None if call.n & 6 else "no"


def text_method(call: Call) -> str | None:
    return None if call.name.startswith("x") else "no"


def in_text(call: Call) -> str | None:
    return None if call.name in "abc" else "no"


def opaque(call: Call) -> str | None:
    return None if call.odd is None else "no"


def endless(call: Call) -> str | None:
    n = call.n
    while n > 0:
        n -= 1
    return None


def dictionary(call: Call) -> str | None:
    return None if call.__dict__ else "no"


CHANCE = random.Random(3)
MANY = frozenset(range(0, 650, 10))


def asks_chance(call: Call) -> str | None:
    return None if CHANCE.random() < 2 else "chance"


def in_many(call: Call) -> str | None:
    return None if call.n in MANY else "not among them"


LISTED = [1, 2]
COUNTER_OF_CALLS = itertools.count()


def looks_at_text(call: Call) -> str | None:
    return None if f"{call.n}x{call.m}" in {"96x128"} else "no"


def compares_text(call: Call) -> str | None:
    text = f"{call.n}"
    return None if text == "5" else "no"


def measures_text(call: Call) -> str | None:
    return None if len(f"{call.n}") == 1 else "no"


def parses_text(call: Call) -> str | None:
    return None if int(f"{call.n}") == 1 else "no"


def shouts(call: Call) -> str | None:
    return f"{call.name}".upper()


def looks_inside(call: Call) -> str | None:
    return None if (f"{call.n}", 1)[0] == "5" else "no"


def keys_by_text(call: Call) -> str | None:
    return {f"{call.n}": None}["5"]


def compares_in_a_generator(call: Call) -> str | None:
    return None if any(text == "5" for text in (f"{call.n}", "x")) else "no"


def pads_text(call: Call) -> str | None:
    return f"{f'{call.n}x{call.m}':>12}"


def pads_by_percent(call: Call) -> str | None:
    return "n %6s" % call.n  # noqa: UP031 - what is tested


def starts_text(call: Call) -> str | None:
    return None if str(call.n).startswith("5") else "no"


def maybe_empty_text(call: Call) -> str | None:
    return f"{call.name}" or None


def catches_type_errors(call: Call) -> str | None:
    try:
        return None if call.name in "ab" else "no"
    except TypeError:
        return "never"


def appends(call: Call) -> str | None:
    LISTED.append(1)
    return None


def assigns_item(call: Call) -> str | None:
    LISTED[0] += 1
    return None


def counts_calls(call: Call) -> str | None:
    return None if next(COUNTER_OF_CALLS) % 2 else "odd"


def sets_attribute(call: Call) -> str | None:
    Base.LIMIT = 3
    return None


def long_range(call: Call) -> str | None:
    if call.n < 2**39:
        return "short"
    return None if call.n in range(3_000_000) else "no"


def returns_tuple_of_fields(call: Call) -> Any:
    return call.pair


NOT_LIFTED = {
    looks_at_text: "the text of",
    compares_text: "the text of n",
    measures_text: "the text of n",
    parses_text: "the text of n",
    shouts: "upper",
    looks_inside: "the text of n",
    keys_by_text: "the text of n",
    compares_in_a_generator: "the text of n",
    pads_text: "width",
    pads_by_percent: "width",
    starts_text: "startswith",
    maybe_empty_text: "the text of name",
    catches_type_errors: "stand-in",
    appends: "append",
    assigns_item: "__setitem__",
    counts_calls: "COUNTER_OF_CALLS",
    sets_attribute: "LIMIT",
    long_range: "answers",
    returns_tuple_of_fields: "tuple",
    asks_chance: "random",
    in_many: "65 constants",
    stores_global: "COUNTER",
    by_dict: "n",
    by_get: "n",
    over_range: "n",
    asks_device: "cpu_count",
    asks_time: "time.time",
    log2: "n",
    converts: "int()",
    swallows: "int()",
    replaces: "call",
    hashes: "hash",
    float_arithmetic: "eps",
    unknown_set: "n",
    odd_mask: "6",
    text_method: "startswith",
    in_text: "stand-in",
    opaque: "odd",
    endless: "questions",
    dictionary: "__dict__",
}
