"""The version of the encoder changes with what stands between a question and its answer."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

from tileops_solver.proofs import keys

BETWEEN = ("tileops_solver.witness", "tileops_solver.boxes", "tileops_rules.replay")
"""What stands between a question and its answer, with all that these import; and what a replay compares."""
BESIDE = ("tileops_rules.archs", "tileops_rules.printing", "tileops_solver.answer", "tileops_solver.z3_backend")
"""What they import and what decides nothing."""
DIGESTS = {3: "6a422cc1ca4c5bc2"}
"""The digest of these files, without comments and docstrings, for the present version of the encoder."""


def sources() -> dict[str, ast.Module]:
    """The syntax trees of :data:`BETWEEN` and of what they import, by module."""
    found: dict[str, ast.Module] = {}
    waiting = list(BETWEEN)
    while waiting:
        name = waiting.pop()
        package, _, module = name.partition(".")
        path = Path(sys.modules[package].__file__ or "").parent.joinpath(*module.split(".")).with_suffix(".py")
        if name in found or name in BESIDE or not path.exists():
            continue
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(found[name]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
                "tileops_rules",
                "tileops_solver",
            ):
                waiting += [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
    return found


def test_a_change_of_the_encoder_takes_a_new_number() -> None:
    found = keys.digest(*(part for name, tree in sorted(sources().items()) for part in (name, shape_of(tree)))).hex()[
        :16
    ]
    assert DIGESTS.get(keys.ENCODER) == found, (
        f"something between questions and answers was changed. Where any answer, smallest call or replay may be "
        f"another now, give tileops_solver.proofs.keys.ENCODER the number {keys.ENCODER + 1}; then write "
        f"DIGESTS = {{<the number>: {found!r}}} here, and refresh the proofs: tileops audit --write-proofs tileops.ops"
    )


def test_the_sources_between_questions_and_answers_are_found() -> None:
    assert {f"tileops_solver.{name}" for name in ("encode", "engine", "codes", "narrowing", "searching")} <= set(
        sources()
    )
    assert {f"tileops_rules.{name}" for name in ("expr", "evaluating", "domain", "shapes", "tree")} <= set(sources())


def shape_of(node: Any) -> str:
    """A text of a syntax tree that is the same for every version of Python, without docstrings."""
    if isinstance(node, list):
        return f"[{' '.join(shape_of(each) for each in node if not is_text(each))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"({type(node).__name__} {' '.join(f'{name}={shape_of(value)}' for name, value in parts)})"


def is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_the_digest_of_sources_leaves_out_what_decides_nothing() -> None:
    plain = shape_of(ast.parse('def f(a):\n    return f"{a!r:>3}" + "x"\n'))
    assert (
        shape_of(ast.parse('"""Doc."""\n\n# why\ndef f(a):\n    """Doc."""\n    return f"{a!r:>3}" + \'x\'')) == plain
    )
    assert shape_of(ast.parse('def f(a):\n    return f"{a!r:>4}" + "x"\n')) != plain
