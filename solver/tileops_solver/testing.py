"""For the tests of ops: the calls at the borders of every region, with what each is to get.

A parametrized test over them, with a readable name for each::

    from tileops_solver.testing import boundary_calls

    @pytest.mark.parametrize("case", boundary_calls(GQADenseFwdOp, "gqa_dense"), ids=str)
    def test_every_border(case):
        assert GQADenseFwdOp().explain("gqa_dense", case.call).winner == case.expected

Nothing here imports pytest.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from tileops_rules import Predicate

from tileops_solver.bordering import MOST_CASES, cases_of
from tileops_solver.cases import Border, Case
from tileops_solver.subject import Subject
from tileops_solver.targets import selector_of

__all__ = ["Border", "Case", "boundary_calls"]


def boundary_calls(
    op: Any,
    interface: str,
    *,
    archs: Collection[int] | None = None,
    within: Predicate | None = None,
    most: int = MOST_CASES,
) -> list[Case]:
    """The calls just inside, on and just outside each face of each region, for ``pytest.mark.parametrize``.

    A case has ``call`` (with the facts of its device stated, so that it can be asked about on any machine),
    ``expected`` (the key that is to run it, or None), ``platform``, ``face`` and ``where``, and ``borders`` for
    every further face where it stands; ``str`` of it is its name, as
    ``sm_90-seqlen_kv=1023-outside-gqa_dense_decode_long_context``. What is expected comes from the original
    methods, on which each call was run.

    The same rules give the same list. It has at most *most* calls: a few for each face of each region on each
    platform, however large the domains.

    Args:
        op: An op class; or an op object, with the kernels that backends registered.
        interface: One of its interfaces.
        archs: Only CUDA devices of these archs; None for every known one and every other device.
        within: Only calls for which this holds, as those of one device: ``fields(Call).sm_count == 132``.
        most: How many calls there may be.

    Raises:
        TargetError: *op* has no such interface, or nothing can be chosen in it.
        ValueError: there are more than *most* calls.
        InconsistencyError: solver, rules and original functions do not agree.

    Warns:
        RuntimeWarning: calls may be missing, because a rule was not lifted or the solver gave up; with which.
    """
    found = cases_of(Subject(selector_of(op, interface), archs=archs), within=within, most=most)
    name = f"{found.op}.{found.interface}"
    if not found.complete:
        raise ValueError(f"{name} has more than {most} boundary calls: name archs, narrow with within, or raise most")
    if found.undecided:
        shown = "".join(f"\n  {line}" for line in found.undecided)
        warnings.warn(f"boundary calls of {name} may be missing:{shown}", RuntimeWarning, stacklevel=2)
    return list(found.cases)
