"""Answers, findings and everything else that is handed out stays as it was made."""

from __future__ import annotations

import dataclasses
import pkgutil
from importlib import import_module

import tileops_solver


def test_what_is_handed_out_cannot_be_changed() -> None:
    seen = 0
    for each in pkgutil.walk_packages(tileops_solver.__path__, "tileops_solver."):
        if each.name.endswith("__main__"):
            continue
        module = import_module(each.name)
        for cls in vars(module).values():
            if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__:
                seen += 1
                assert cls.__dataclass_params__.frozen, f"freeze {cls}"
    assert seen > 40
