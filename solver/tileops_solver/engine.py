"""One question at a time: the one place that calls z3's ``check()``.

The order is: what intervals and sets refute at once; integers, with remainders of products split over
residues; bit-vectors wide enough that nothing wraps; then undecided, with the reason.

Work is limited in z3's own units (``rlimit``), so that an answer does not depend on the machine. No z3 object
outlives its :class:`Question`: it holds one context, gone when the ``with`` block ends, and hands out plain
numbers only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path

from tileops_solver import z3_backend
from tileops_solver.answer import InconsistencyError
from tileops_solver.codes import Codes, codes_of
from tileops_solver.definite import definitely
from tileops_solver.encode import Encoder, beyond_ranges, bits_cost, code_range
from tileops_solver.narrowing import Narrowed, narrow

__all__ = ["Outcome", "Question", "Reply", "Span"]

INTEGER_WORK: Final = 100_000
"""rlimit of one check over integers: 10 to 400 ms. Most answers take 5,000; more is for bit-vectors."""

INTEGER_WORK_ALONE: Final = 300_000
"""The same where bit-vectors cannot be asked afterwards."""

BITS_WORK: Final = 4_000_000
"""rlimit of one check over bit-vectors: about 0.6 s."""

INTEGER_PRICE: Final = 10
"""A unit of work over integers takes up to this many times as long as one over bit-vectors, on products."""

QUESTION_WORK: Final = 12_000_000
"""Work of all checks of one question together, its witness included, in units over bit-vectors: about 2 s."""

WIDEST: Final = 128
"""Most bits a question is asked in: a product of three undeclared sizes (2**40 each) fits."""

MOST_GATES: Final = 2**17
"""Ceiling of multiplications and divisions times width**2: 0.5 s and 320 MB, which rlimit does not see."""

Span = tuple[int, int]
"""Codes of a slot, both ends included."""


class Outcome(enum.Enum):
    """What z3 says of a question under some limits."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reply:
    """An outcome with its facts.

    Attributes:
        outcome: The outcome.
        codes: A solution, for POSSIBLE.
        reason: Why nothing is known, for UNKNOWN; which procedure answered otherwise.
    """

    outcome: Outcome
    codes: Mapping[Path, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class _Spans:
    """A slot's code lies in one of several spans."""

    path: Path
    spans: Sequence[Span]

    def allows(self, codes: Mapping[Path, int]) -> bool:
        return any(low <= codes[self.path] <= high for low, high in self.spans)


@dataclass(frozen=True)
class _Except:
    """Not all slots have these codes at once."""

    codes: Mapping[Path, int]

    def allows(self, codes: Mapping[Path, int]) -> bool:
        return any(codes[path] != code for path, code in self.codes.items())


@dataclass(frozen=True)
class _Changes:
    """At most some number of slots have another code than the one stated."""

    codes: Mapping[Path, int]
    most: int

    def allows(self, codes: Mapping[Path, int]) -> bool:
        return sum(codes[path] != code for path, code in self.codes.items()) <= self.most


_Constraint = _Spans | _Except | _Changes


@dataclass(frozen=True)
class _Plan:
    """A way to ask: its name, width in bits (None for integers), work of one check, price of a unit of it."""

    name: str
    width: int | None
    work: int
    price: int


class Question:
    """Is there an assignment of the slots of *domain* for which *expr* holds?

    Attributes:
        expr: The question, which holds only where it has an answer.
        domain: Where its slots range.
        codes: The slots that it reads, and what their codes stand for.
        known: What the question forces by itself, or None where it cannot hold.
    """

    def __init__(self, expr: Expr, domain: Domain, apart: bool = False) -> None:
        """Take up a question.

        Args:
            expr: The question.
            domain: Where its slots range.
            apart: As for :func:`~tileops_solver.codes.codes_of`.
        """
        self.expr = definitely(expr, domain)
        self.domain = domain
        self.codes: dict[Path, Codes] = codes_of(self.expr, domain, apart)
        self.known: Narrowed | None = narrow(self.expr, domain, self.codes)
        self._frames: list[list[_Constraint]] = [[]]
        self._stage: _Stage | None = None
        self._stages = self._arithmetics()
        self._reasons: list[str] = []
        self._left = QUESTION_WORK

    def __enter__(self) -> Question:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage = None
        self._stages = iter(())
        self._left = 0

    def values(self, codes: Mapping[Path, int]) -> dict[Path, Any]:
        """The slot values that *codes* stand for."""
        return {path: mine.value(codes[path]) for path, mine in self.codes.items()}

    def holds(self, codes: Mapping[Path, int]) -> bool:
        """Whether the question holds there, by Python's arithmetic; a division by zero makes it fail."""
        try:
            return bool(evaluate(self.expr, self.values(codes)))
        except ZeroDivisionError:
            return False

    def allows(self, codes: Mapping[Path, int]) -> bool:
        """Whether *codes* respect everything that is required and excluded so far."""
        return all(constraint.allows(codes) for frame in self._frames for constraint in frame)

    def require(self, path: Path, *spans: Span) -> None:
        """From here to the end of the enclosing :meth:`level`, the slot's code lies in one of *spans*."""
        self._add(_Spans(path, spans))

    def exclude(self, codes: Mapping[Path, int]) -> None:
        """From here to the end of the enclosing :meth:`level`, not all slots have these codes at once."""
        self._add(_Except(codes))

    def change_at_most(self, codes: Mapping[Path, int], most: int) -> None:
        """From here to the end of the enclosing :meth:`level`, at most *most* slots have another code than these."""
        self._add(_Changes(codes, most))

    @contextmanager
    def level(self) -> Iterator[None]:
        """What is required or excluded inside is forgotten at the end."""
        self._frames.append([])
        self._tell(lambda stage: stage.solver.push())
        try:
            yield
        finally:
            self._frames.pop()
            self._tell(lambda stage: stage.solver.pop())

    def check(self) -> Reply:
        """Whether the question can hold under what is required so far.

        Raises:
            InconsistencyError: z3's solution does not satisfy the question in Python.
        """
        if self.known is None:
            return Reply(Outcome.IMPOSSIBLE, reason="intervals and sets of values do not meet")
        if self._stage is None:
            self._next_stage()
        reply = self._ask()
        while reply.outcome is Outcome.UNKNOWN and self._next_stage():
            reply = self._ask()
        if reply.outcome is Outcome.POSSIBLE and not self.holds(reply.codes):
            raise InconsistencyError(
                f"z3 ({reply.reason}) gives a solution of a question that does not hold in Python",
                facts=(f"question: {self.expr}", f"solution: {self.values(reply.codes)}"),
            )
        if reply.outcome is Outcome.UNKNOWN:
            return Reply(Outcome.UNKNOWN, reason="; ".join(self._reasons))
        return reply

    def _add(self, constraint: _Constraint) -> None:
        self._frames[-1].append(constraint)
        self._tell(lambda stage: stage.add(constraint))

    def _tell(self, order: Callable[[_Stage], None]) -> None:
        """Pass an order on to the solver that holds the question, if one does; one that fails is given up."""
        if self._stage is None:
            return
        try:
            order(self._stage)
        except (MemoryError, z3_backend.load().Z3Exception) as error:
            self._give_up(f"{self._stage.plan.name}: {type(error).__name__}: {error}")

    def _give_up(self, reason: str) -> None:
        self._stage = None
        self._note(reason)

    def _note(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.append(reason)

    def _arithmetics(self) -> Iterator[_Plan]:
        """The ways to ask, in order."""
        if self.known is None:
            return
        cost = bits_cost(self.expr, self.known, self.codes)
        too_large = ""
        if cost.width > WIDEST:
            too_large = f"{cost.width} bits are more than {WIDEST}"
        elif cost.gates > MOST_GATES:
            too_large = f"{cost.gates:,} gates in {cost.width} bits are more than {MOST_GATES:,}"
        yield _Plan("integers", None, INTEGER_WORK_ALONE if too_large else INTEGER_WORK, INTEGER_PRICE)
        if too_large:
            self._note(f"bit-vectors: not asked, {too_large}")
        else:
            yield _Plan(f"bit-vectors of {cost.width} bits", cost.width, BITS_WORK, 1)

    def _next_stage(self) -> bool:
        """Go on to the next arithmetic; False, and the present one stays, where there is none."""
        known = self.known
        plan = next(self._stages, None)
        if plan is None or known is None:
            return False
        z3 = z3_backend.load()
        try:
            self._stage = stage = _Stage(z3, self.expr, known, self.codes, plan)
            for number, frame in enumerate(self._frames):
                if number:
                    stage.solver.push()
                for constraint in frame:
                    stage.add(constraint)
        except (MemoryError, z3.Z3Exception) as error:
            self._give_up(f"{plan.name}: {type(error).__name__}: {error}")
            return self._next_stage()
        return True

    def _ask(self) -> Reply:
        if self._left <= 0:
            self._note("the work that one question may take is used up")
        elif self._stage is not None:
            try:
                reply, spent = self._stage.ask(self._left)
            except (MemoryError, z3_backend.load().Z3Exception) as error:
                self._give_up(f"{self._stage.plan.name}: {type(error).__name__}: {error}")
            else:
                self._left -= spent
                if reply.outcome is not Outcome.UNKNOWN:
                    return reply
                self._note(reply.reason)
        return Reply(Outcome.UNKNOWN)


class _Stage:
    """One solver that holds the question, in one arithmetic."""

    def __init__(self, z3: Any, expr: Expr, known: Narrowed, codes: Mapping[Path, Codes], plan: _Plan) -> None:
        self._z3 = z3
        self.plan = plan
        context = z3.Context()
        self._encoder = Encoder(z3, context, known, codes, plan.width)
        self._ranges = {path: code_range(path, mine, known) for path, mine in codes.items()}
        # The plain core: on products, the default solver spends 100 times as long in preprocessing.
        self.solver = z3.SimpleSolver(ctx=context)
        self.solver.set("random_seed", 0)
        # Python raises KeyboardInterrupt itself once the check returns; z3's handler is not thread-safe.
        self.solver.set("ctrl_c", False)
        term = self._encoder.encode(beyond_ranges(expr, codes, known))
        self._ranged = dict.fromkeys(self._encoder.variables)  # in their order: a set has another in every process
        self.solver.add(*self._encoder.ranges(self._ranged), term)

    def add(self, constraint: _Constraint) -> None:
        """Add a constraint at the solver's present level."""
        if isinstance(constraint, _Except):
            if not all(self._can_be(path, code) for path, code in constraint.codes.items()):
                return
            self._keep_ranges(constraint.codes)
            self._any([self._differs(path, code) for path, code in constraint.codes.items()])
            return
        if isinstance(constraint, _Changes):
            self._at_most(constraint)
            return
        variable = self._encoder.variable(constraint.path)
        low, high = self._ranges[constraint.path]
        # Spans are cut to the slot's range: a bit-vector need not be wide enough for a number outside it.
        inside = [(max(low, a), min(high, b)) for a, b in constraint.spans if max(low, a) <= min(high, b)]
        self._any([self._within(variable, a, b) for a, b in inside])

    def _can_be(self, path: Path, code: int) -> bool:
        """Whether a code is in its slot's range: a bit-vector need not be wide enough for another."""
        low, high = self._ranges[path]
        return low <= code <= high

    def _keep_ranges(self, paths: Iterable[Path]) -> None:
        """Say at the present level what the question, which does not mention them, did not say of these slots."""
        self.solver.add(*self._encoder.ranges(path for path in paths if path not in self._ranged))

    def _any(self, terms: list[Any]) -> None:
        self.solver.add(self._encoder.terms.any_of(terms))

    def _within(self, variable: Any, low: int, high: int) -> Any:
        encoder, terms = self._encoder, self._encoder.terms
        if low == high:
            return terms.equal(variable, encoder.number(low))
        ends = terms.at_least(variable, encoder.number(low)), terms.at_most(variable, encoder.number(high))
        return terms.every(ends)

    def _differs(self, path: Path, code: int) -> Any:
        return self._encoder.terms.no(
            self._encoder.terms.equal(self._encoder.variable(path), self._encoder.number(code))
        )

    def _at_most(self, constraint: _Changes) -> None:
        self._keep_ranges(constraint.codes)
        terms = [self._differs(path, code) for path, code in constraint.codes.items() if self._can_be(path, code)]
        most = constraint.most - (len(constraint.codes) - len(terms))
        if most < 0:
            self._any([])
        elif most < len(terms):
            self.solver.add(self._z3.AtMost(*terms, most))

    def ask(self, most: int) -> tuple[Reply, int]:
        """What the solver says, and the work that took."""
        name, price = self.plan.name, self.plan.price
        work = min(self.plan.work, most // price + 1)
        before = self._count()
        self.solver.set("rlimit", work)
        found = self.solver.check()
        spent = max(1, self._count() - before) * price
        if found == self._z3.unsat:
            return Reply(Outcome.IMPOSSIBLE, reason=f"proved with {name}"), spent
        if found == self._z3.unknown:
            why = self.solver.reason_unknown()
            if "cancel" in why or "resource" in why:
                why = f"no answer within {work:,} units of work"
            return Reply(Outcome.UNKNOWN, reason=f"{name}: {why}"), spent
        model = self.solver.model()
        codes = {path: self._code(model, path, *ends) for path, ends in self._ranges.items()}
        return Reply(Outcome.POSSIBLE, codes, f"found with {name}"), spent

    def _code(self, model: Any, path: Path, low: int, high: int) -> int:
        """The code of a slot in a solution; any in its range where nothing that was added depends on it."""
        variable = self._encoder.variables.get(path)
        if variable is None:
            return low
        return min(max(low, self._number(model.eval(variable, model_completion=True))), high)

    def _number(self, value: Any) -> int:
        number: int = value.as_signed_long() if self.plan.width is not None else value.as_long()
        return number

    def _count(self) -> int:
        statistics = self.solver.statistics()
        names = list(statistics.keys())
        return int(statistics.get_key_value("rlimit count")) if "rlimit count" in names else 0
