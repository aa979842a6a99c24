"""What one interface was asked before: the way from a question to its line on file, and back to a witness.

A call that was found is not believed: it is built again from its slot values and has to satisfy the question, be
accepted by its own class, and be served as the question says when the real methods are run. Otherwise it is as if
it were not on file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tileops_rules import Selector
from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, Expr

from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.engine import Outcome
from tileops_solver.proofs.keys import near_key, order_key, question_key
from tileops_solver.proofs.store import FOUND, NONE, ProofFile
from tileops_solver.proofs.values import read_values, written_values
from tileops_solver.witness import Witness, same_values, usual_facts

__all__ = ["Memory"]


class Memory:
    """The answers on file about one interface.

    Args:
        file: The proofs of the op.
        selector: The implementations.
    """

    def __init__(self, file: ProofFile, selector: Selector) -> None:
        self._file = file
        self._selector = selector

    @property
    def records(self) -> bool:
        """Answers are remembered."""
        return self._file.records

    def recall(
        self,
        domain: Domain,
        parts: Sequence[Expr],
        accepts: Callable[[Any], str | None],
        confirm: Callable[[Any], None],
    ) -> Witness | None:
        """The answer to a question that is on file; None where it has to be asked.

        Args:
            domain: What the fields range over.
            parts: The question.
            accepts: Says of a call that was found why it cannot be, if so.
            confirm: Holds the rules against the real methods, on a call that was found.
        """
        if FALSE in parts:
            return None
        line = self._file.recall(question_key(self._file.versions, domain, parts))
        if line is None:
            return None
        if line[1] == NONE:
            return Witness(Outcome.IMPOSSIBLE, reason="proved before, and on file")
        return None if line[2] is None else _rebuilt(line[2], domain, parts, accepts, confirm)

    def keep(self, label: str, domain: Domain, parts: Sequence[Expr], witness: Witness) -> None:
        """Remember an answer; what was not decided is not remembered.

        Nor is the answer to a question one part of which is ``False``; nor a call that was found only after the
        class of the call had rejected others: what that class does is no part of the question.
        """
        if FALSE in parts:
            return
        key = question_key(self._file.versions, domain, parts)
        if witness.outcome is Outcome.IMPOSSIBLE:
            self._file.keep(label, NONE, None, key)
        elif witness.outcome is Outcome.POSSIBLE and witness.values is not None:
            values = written_values(witness.values, domain)
            if values is not None:
                self._file.keep(label, FOUND, values, key)

    def recall_near(self, call: Any, served: Expr, accepts: Callable[[Any], str | None]) -> Answer | None:
        """The served call nearest to *call*, where that is on file."""
        key = self._near_key(call, served)
        line = None if key is None else self._file.recall(key)
        if line is None:
            return None
        if line[1] == NONE:
            return Answer(Verdict.NONE, reason="proved before, and on file")
        parts = [self._selector.valid.expr, served]
        found = None if line[2] is None else _rebuilt(line[2], self._selector.domain, parts, accepts, lambda call: None)
        return None if found is None else Answer(Verdict.FOUND, found.call)

    def keep_near(self, label: str, call: Any, served: Expr, answer: Answer) -> None:
        """Remember the served call nearest to *call*; what was not decided is not remembered."""
        key = self._near_key(call, served)
        if answer.verdict is Verdict.NONE:
            self._file.keep(label, NONE, None, key)
        elif answer.verdict is Verdict.FOUND:
            domain = self._selector.domain
            values = written_values(domain.read(answer.call), domain)
            if values is not None:
                self._file.keep(label, FOUND, values, key)

    def _near_key(self, call: Any, served: Expr) -> str | None:
        """The key, where all that decides is lifted."""
        selector = self._selector
        lifted = not selector.not_lifted and selector.invalid_not_lifted is None
        if not lifted or hasattr(selector.spec, "__post_init__"):
            return None
        return near_key(self._file.versions, selector.domain, [selector.valid.expr, served], call)

    def recall_order(self) -> bool:
        """Whether it is on file that no call is served by two implementations of which none is preferred."""
        return self._file.proves_order(self._selector)

    def keep_order(self) -> None:
        """Remember that no call is served by two implementations of which none is preferred."""
        label = f"{self._selector.interface} order: no two of {len(self._selector.keys)} serve one call"
        self._file.keep(label, NONE, None, order_key(self._file.versions, self._selector))


def _rebuilt(
    written: dict[str, Any],
    domain: Domain,
    parts: Sequence[Expr],
    accepts: Callable[[Any], str | None],
    confirm: Callable[[Any], None],
) -> Witness | None:
    """The call with the slot values *written*; None where it is no answer any more."""
    values = read_values(written, domain)
    if values is None:
        return None
    try:
        call = domain.build({**usual_facts(domain, values), **values})
    except Exception:  # noqa: BLE001 - a spec's own constructor may raise anything; the question is asked again
        return None
    if not same_values(domain, call, values):
        return None
    try:
        held = domain.read(call)
        if not all(evaluate(part, held) for part in parts) or accepts(call) is not None:
            return None
        confirm(call)
    except (ZeroDivisionError, InconsistencyError):
        return None
    return Witness(Outcome.POSSIBLE, call)
