"""The probes, one function each, and :func:`examine`, which runs them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tileops.doctor.diagnosis import Card, Diagnosis, Implementation, Probe, Status
from tileops.doctor.inventory import inventory
from tileops.doctor.machine import Machine

__all__ = ["DISTRIBUTION", "IMPORT_NAMES", "examine"]

DISTRIBUTION = "tileops-proved"
IMPORT_NAMES = {"tileops": ".", "tileops_rules": "rules", "tileops_solver": "solver"}
"""Our import names, and the folder of the source tree that holds each."""

_MODULES = {
    "torch": ("torch", "without it only rules and proofs of other packages work"),
    "tilelang": ("tilelang", "without it no CUDA kernel can be built"),
    "z3": ("z3-solver", "without it nothing can be proved"),
    "networkx": ("networkx", "without it nothing can be proved"),
}
"""What we import, the distribution it comes from, and what does not work without it."""


class _NotHere(Exception):
    """What a probe looks for is not on this machine; *advice* says what to do."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


def examine(machine: Machine | None = None) -> Diagnosis:
    """Look at *machine* (this one by default) and return what was found; never raises for what it finds."""
    machine = machine or Machine()
    cards, cuda = _cuda(machine)
    implementations, tables = _ops(machine, cards)
    probes = (
        Probe("python", Status.OK, machine.python()),
        _own_distribution(machine),
        *(_module(machine, name) for name in _MODULES),
        cuda,
        _nvcc(machine),
        *_import_names(machine),
        *tables,
    )
    return Diagnosis(probes, cards, implementations)


def _softly(name: str, look: Callable[[], str], *, missing: str, broken: str) -> Probe:
    """Run *look* and return what it says or raises as a probe; *missing* and *broken* are the advice then."""
    try:
        return Probe(name, Status.OK, look())
    except _NotHere as absence:
        return Probe(name, Status.MISSING, str(absence), absence.advice)
    except ModuleNotFoundError as error:
        return Probe(name, Status.MISSING, f"not installed ({error})", missing)
    except Exception as error:  # noqa: BLE001 - whatever is wrong here is the finding
        return Probe(name, Status.BROKEN, f"{type(error).__name__}: {error}", broken)


def _own_distribution(machine: Machine) -> Probe:
    where = machine.folder("tileops")
    return _softly(
        DISTRIBUTION,
        lambda: f"{machine.version(DISTRIBUTION)} in {where}",
        missing=f"fine for running from {where}; otherwise: pip install -e . in the source tree",
        broken=f"reinstall {DISTRIBUTION}",
    )


def _module(machine: Machine, name: str) -> Probe:
    distribution, consequence = _MODULES[name]

    def look() -> str:
        module = machine.load(name)
        if name == "torch":
            return f"{module.__version__}, built for CUDA {module.version.cuda or 'none'}"
        return str(module.get_version_string() if name == "z3" else module.__version__)

    return _softly(
        name,
        look,
        missing=f"pip install {distribution}; {consequence}",
        broken=f"pip install --force-reinstall {distribution}; {consequence}",
    )


def _cuda(machine: Machine) -> tuple[tuple[Card, ...], Probe]:
    """Return the CUDA devices and what there is to say of them."""
    cards: list[Card] = []

    def look() -> str:
        torch = machine.load("torch")
        if not torch.cuda.is_available():
            why = "no driver, or no device visible" if torch.version.cuda else "this torch is built without CUDA"
            raise _NotHere(f"none: {why}", "to run on the CPU, call tileops.reference.install()")
        facts = machine.load("tileops.kernels.device_facts")
        for index in range(torch.cuda.device_count()):
            device = torch.device("cuda", index)
            properties, read = torch.cuda.get_device_properties(device), facts.device_facts(device)
            cards.append(
                Card(
                    index,
                    properties.name,
                    read.arch,
                    read.sm_count,
                    read.smem_budget,
                    properties.total_memory,
                )
            )
        return "; ".join(_described(card) for card in cards)

    probe = _softly("CUDA devices", look, missing="pip install torch", broken="check the driver with nvidia-smi")
    return tuple(cards), probe


def _described(card: Card) -> str:
    return (
        f"{card.name} (cuda:{card.index}, SM{card.arch}, {card.sm_count} SMs, "
        f"{card.smem_budget // 1024} KiB shared memory a block, {card.memory / 2**30:.0f} GiB)"
    )


def _nvcc(machine: Machine) -> Probe:
    advice = "install the CUDA toolkit, or set CUDA_HOME to where it is; TileLang compiles kernels with nvcc"

    def look() -> str:
        path = machine.nvcc()
        if path is None:
            raise _NotHere("neither on PATH nor under CUDA_HOME", advice)
        text = machine.output(path, "--version")
        release = re.search(r"release (\S+?),", text)
        return f"{release.group(1) if release else text.strip()} at {path}"

    return _softly("nvcc", look, missing=advice, broken=advice)


def _import_names(machine: Machine) -> Iterator[Probe]:
    """Look for foreign packages of our import names: they hide ours, or overwrote files of it."""
    providers = machine.providers()
    ours = machine.folder("tileops")
    for name, folder in IMPORT_NAMES.items():
        foreign = sorted(set(providers.get(name, ())) - {DISTRIBUTION})
        where = machine.folder(name)
        label = f"import {name}"
        if foreign:
            advice = f"pip uninstall {' '.join(foreign)}, then reinstall {DISTRIBUTION}"
            yield Probe(label, Status.BROKEN, f"also provided by {', '.join(foreign)}", advice)
        elif where is None:
            yield Probe(label, Status.MISSING, "not found", "pip install -e . in the source tree")
        elif ours is not None and where not in _own_places(ours, name, folder):
            advice = f"remove its parent from sys.path, or rename it; ours lies beside {ours}"
            yield Probe(label, Status.BROKEN, f"a foreign package: {where}", advice)
        else:
            yield Probe(label, Status.OK, str(where))


def _own_places(ours: Path, name: str, folder: str) -> set[Path]:
    """Return where *name* may lie: beside our ``tileops`` when installed, in *folder* in the source tree."""
    return {ours.parent / name, (ours.parent / folder / name).resolve()}


def _ops(machine: Machine, cards: tuple[Card, ...]) -> tuple[tuple[Implementation, ...], list[Probe]]:
    """Return the implementations of the ops here, and whether all ops and plug-ins are sound."""
    found: list[Implementation] = []
    failures: list[Probe] = []

    def look() -> str:
        implementations, probes = inventory(machine, cards)
        found.extend(implementations)
        failures.extend(probes)
        return f"{len(found)} implementations of {len({each.op for each in found})} ops"

    probe = _softly(
        "ops",
        look,
        missing="install what the error names; ops need torch, and z3 and networkx to be proved",
        broken="importing tileops.ops fails; the error names what to mend",
    )
    return tuple(found), [probe, *failures]
