"""What every report of measured figures says of itself, how its tables look, and where it is kept."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import CUDA

RESULTS = Path(__file__).resolve().parent / "results"


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The options of every script that measures on a GPU: ``--write`` keeps its report, ``--into`` says where."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the report")
    parser.add_argument("--into", type=Path, default=RESULTS, help="the folder that keeps it")
    return parser


def versions(names: Iterable[str]) -> dict[str, str | None]:
    """Of those distributions that are installed, and of the CUDA that torch was built with."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed: its column stays empty
    return {**found, "cuda": torch.version.cuda}


def report_of(names: Iterable[str], **more: Any) -> dict[str, Any]:
    """A report of this day on this card, with the versions of *names* and all that is in *more*."""
    card = torch.cuda.get_device_name(CUDA)
    return {"date": datetime.date.today().isoformat(), "card": card, "versions": versions(names), **more}


def keep(report: dict[str, Any], kind: str, into: Path, only: str | None = None) -> Path:
    """Write *report* to ``<kind>-<card>-<date>.json`` in *into*, of one part to ``<kind>-<only>-…``, and say where."""
    into.mkdir(parents=True, exist_ok=True)
    name = kind if only is None else f"{kind}-{only}"
    path = into / f"{name}-{report['card'].lower().replace(' ', '-')}-{report['date']}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def markdown(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
