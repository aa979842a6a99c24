from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from tileops.cli import main
from tileops.doctor import Diagnosis, Machine, Probe, Status, examine
from tileops.doctor.report import render

OURS = Path("/site/tileops")
H200 = SimpleNamespace(name="NVIDIA H200", total_memory=141 * 2**30)


class Interface:
    pass


class Other:
    pass


class Sm90(Interface):
    devices = frozenset({"cuda"})
    supported_archs = [90]


class Old(Interface):
    devices = frozenset({"cuda"})
    supported_archs = [86, 80]


class Anywhere(Interface):
    devices = frozenset({"cuda"})
    supported_archs = None


class Reference(Interface):
    devices = frozenset({"cpu"})
    supported_archs = None


class Foreign(Other):
    devices = frozenset({"npu"})
    supported_archs = None


class NormOp:
    kernel_types: ClassVar[dict[str, type]] = {
        "sm90": Sm90,
        "old": Old,
        "anywhere": Anywhere,
        "foreign": Foreign,
    }
    interfaces: ClassVar[dict[str, type]] = {"norm": Interface, "other": Other}


class EmptyOp:
    kernel_types: ClassVar[dict[str, type]] = {}
    interfaces: ClassVar[dict[str, type]] = {}


class Fake(Machine):
    """A machine with everything on it, of which a test takes things away."""

    def __init__(self, **changes: Any) -> None:
        cuda = SimpleNamespace(
            is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda device: H200
        )
        facts = SimpleNamespace(arch=90, sm_count=132, smem_budget=227 * 1024)
        self.modules: dict[str, Any] = {
            "torch": SimpleNamespace(
                __version__="2.13.0",
                version=SimpleNamespace(cuda="13.0"),
                cuda=cuda,
                device=lambda *place: place,
            ),
            "tilelang": SimpleNamespace(__version__="0.1.15"),
            "z3": SimpleNamespace(get_version_string=lambda: "4.15.4"),
            "networkx": SimpleNamespace(__version__="3.6.1"),
            "tileops.kernels.device_facts": SimpleNamespace(device_facts=lambda device: facts),
            "tileops.ops": SimpleNamespace(NormOp=NormOp, Again=NormOp, Helper=Interface, EmptyOp=EmptyOp),
            "tileops.ops.selection": SimpleNamespace(selection_of=lambda op: op),
            "tileops.reference": SimpleNamespace(REFERENCES=(("NormOp", "reference", Reference),)),
            "tileops.backend": SimpleNamespace(load_failures=dict, unclaimed=tuple),
            **changes.pop("modules", {}),
        }
        self.provided: Mapping[str, list[str]] = changes.pop("provided", {"tileops": ["tileops-proved"]})
        self.folders = {
            "tileops": OURS,
            "tileops_rules": Path("/site/tileops_rules"),
            "tileops_solver": Path("/site/tileops_solver"),
            **changes.pop("folders", {}),
        }
        self.compiler: str | None = changes.pop("nvcc", "/cuda/bin/nvcc")
        assert not changes, changes

    def load(self, module: str) -> Any:
        found = self.modules.get(module)
        if found is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        if isinstance(found, BaseException):
            raise found
        return found

    def version(self, distribution: str) -> str:
        return "0.1.0"

    def providers(self) -> Mapping[str, list[str]]:
        return self.provided

    def folder(self, package: str) -> Path | None:
        return self.folders[package]

    def nvcc(self) -> str | None:
        return self.compiler

    def output(self, *command: str) -> str:
        assert command == (self.compiler, "--version")
        return "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"


def without_cuda(built: str | None) -> Any:
    cuda = SimpleNamespace(is_available=lambda: False)
    return SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda=built), cuda=cuda)


def probe(diagnosis: Diagnosis, name: str) -> Probe:
    (found,) = (each for each in diagnosis.probes if each.name == name)
    return found


def test_a_machine_with_everything_is_described() -> None:
    diagnosis = examine(Fake())
    assert probe(diagnosis, "torch").found == "2.13.0, built for CUDA 13.0"
    assert probe(diagnosis, "nvcc").found == "13.0 at /cuda/bin/nvcc"
    assert probe(diagnosis, "z3").found == "4.15.4"
    (card,) = diagnosis.cards
    assert (card.arch, card.sm_count, card.smem_budget) == (90, 132, 227 * 1024)
    assert "SM90, 132 SMs, 227 KiB shared memory a block, 141 GiB" in probe(diagnosis, "CUDA devices").found


@pytest.mark.parametrize("name", ["torch", "tilelang", "z3", "networkx"])
def test_a_missing_package_is_named_with_what_to_install(name: str) -> None:
    diagnosis = examine(Fake(modules={name: None}))
    found = probe(diagnosis, name)
    assert found.status is Status.MISSING
    assert f"No module named '{name}'" in found.found
    assert found.advice.startswith(f"pip install {name}")
    assert not diagnosis.broken


def test_a_package_that_does_not_load_is_broken_with_its_error() -> None:
    diagnosis = examine(Fake(modules={"tilelang": OSError("libcuda.so.1: cannot open shared object file")}))
    assert [each.name for each in diagnosis.broken] == ["tilelang"]
    assert "OSError: libcuda.so.1" in probe(diagnosis, "tilelang").found


@pytest.mark.parametrize(
    ("built", "why"),
    [("13.0", "no driver, or no device visible"), (None, "this torch is built without CUDA")],
)
def test_no_cuda_device_is_no_fault_and_names_the_reference(built: str | None, why: str) -> None:
    torch = without_cuda(built)
    diagnosis = examine(Fake(modules={"torch": torch}))
    found = probe(diagnosis, "CUDA devices")
    assert (found.status, diagnosis.cards, diagnosis.broken) == (Status.MISSING, (), ())
    assert why in found.found
    assert "tileops.reference.install()" in found.advice


def test_a_driver_that_fails_is_broken() -> None:
    def fail(device: object) -> None:
        raise RuntimeError("CUDA unknown error")

    machine = Fake()
    machine.modules["torch"].cuda.get_device_properties = fail
    diagnosis = examine(machine)
    assert [each.name for each in diagnosis.broken] == ["CUDA devices"]
    assert "CUDA unknown error" in probe(diagnosis, "CUDA devices").found


def test_a_missing_nvcc_says_what_to_install() -> None:
    found = probe(examine(Fake(nvcc=None)), "nvcc")
    assert found.status is Status.MISSING
    assert "install the CUDA toolkit" in found.advice


def test_another_distribution_of_our_import_name_is_broken() -> None:
    diagnosis = examine(Fake(provided={"tileops": ["tileops", "tileops-proved"]}))
    (found,) = diagnosis.broken
    assert found.name == "import tileops"
    assert found.found == "also provided by tileops"
    assert found.advice == "pip uninstall tileops, then reinstall tileops-proved"


def test_a_foreign_folder_of_our_import_name_is_broken() -> None:
    diagnosis = examine(Fake(folders={"tileops_rules": Path("/elsewhere/tileops_rules")}))
    (found,) = diagnosis.broken
    assert found.name == "import tileops_rules"
    assert "/elsewhere/tileops_rules" in found.found


def test_the_source_tree_is_not_foreign() -> None:
    folders = {
        "tileops": Path("/src/tileops"),
        "tileops_rules": Path("/src/rules/tileops_rules"),
        "tileops_solver": Path("/src/solver/tileops_solver"),
    }
    assert examine(Fake(folders=folders)).broken == ()


def said(diagnosis: Diagnosis) -> dict[str, tuple[bool, str]]:
    return {each.key: (each.runs, each.reason) for each in diagnosis.implementations}


def test_every_implementation_says_where_it_runs_or_what_it_needs() -> None:
    diagnosis = examine(Fake())
    assert said(diagnosis) == {
        "anywhere": (True, "on cuda:0"),
        "foreign": (False, "needs a device of type npu"),
        "old": (False, "needs a CUDA device of SM80, SM86; here: SM90"),
        "reference": (True, "on the CPU, once tileops.reference.install() is called"),
        "sm90": (True, "on cuda:0"),
    }
    assert {each.interface for each in diagnosis.implementations if each.key == "foreign"} == {"other"}
    assert probe(diagnosis, "ops").found == "5 implementations of 1 ops"


def test_without_a_gpu_an_implementation_names_the_cards_it_needs() -> None:
    torch = without_cuda(built=None)
    found = said(examine(Fake(modules={"torch": torch})))
    assert found["sm90"] == (False, "needs a CUDA device of SM90")
    assert found["anywhere"] == (False, "needs a CUDA device")


def test_an_installed_reference_needs_no_install() -> None:
    installed = SimpleNamespace(kernel_types={**NormOp.kernel_types, "reference": Reference})
    machine = Fake(modules={"tileops.ops.selection": SimpleNamespace(selection_of=lambda op: installed)})
    assert said(examine(machine))["reference"] == (True, "on the CPU")


def test_an_op_that_fails_its_checks_is_broken_and_stops_nothing_else() -> None:
    def fail(op: type) -> None:
        raise ValueError(f"{op.__name__}: preferences form a cycle through a, b")

    diagnosis = examine(Fake(modules={"tileops.ops.selection": SimpleNamespace(selection_of=fail)}))
    assert [each.name for each in diagnosis.broken] == ["op NormOp"]
    assert "preferences form a cycle" in diagnosis.broken[0].found


def test_a_plug_in_that_was_left_out_is_broken_with_its_reason() -> None:
    failures = {"fast": ValueError("both serve")}
    backend = SimpleNamespace(load_failures=lambda: failures, unclaimed=tuple)
    (found,) = examine(Fake(modules={"tileops.backend": backend})).broken
    assert (found.name, found.found) == ("plug-in fast", "ValueError: both serve")


@pytest.mark.parametrize(
    ("op_name", "status", "advice"),
    [
        ("NormOpp", Status.BROKEN, "no op takes it: write NormOp there"),
        ("Zzz", Status.MISSING, "those of tileops.ops are NormOp"),
    ],
)
def test_a_kernel_for_an_op_that_nobody_has_is_listed_with_the_name_that_was_meant(
    op_name: str, status: Status, advice: str
) -> None:
    stray = SimpleNamespace(op_name=op_name, key="fast", place="theirs.py:3")
    backend = SimpleNamespace(load_failures=dict, unclaimed=lambda: (stray,))
    found = probe(examine(Fake(modules={"tileops.backend": backend})), "kernel fast")
    assert found.status is status
    assert found.found == f"registered at theirs.py:3 for {op_name}, and no op of that name is imported"
    assert advice in found.advice


def test_ops_that_do_not_import_leave_the_other_probes_standing() -> None:
    diagnosis = examine(Fake(modules={"tileops.ops": None}))
    assert probe(diagnosis, "ops").status is Status.MISSING
    assert probe(diagnosis, "torch").status is Status.OK
    assert diagnosis.implementations == ()


def test_every_row_is_rendered_with_its_advice() -> None:
    diagnosis = examine(Fake(nvcc=None, provided={"tileops": ["other"]}))
    text = render(diagnosis, width=200)
    for each in diagnosis.probes:
        assert each.name in text
        assert each.advice in text
    assert "broken" in text


def test_the_command_exits_1_only_where_something_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    import tileops.doctor.examination as examination

    monkeypatch.setattr(examination, "Machine", Fake)
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 0
    monkeypatch.setattr(examination, "Machine", lambda: Fake(provided={"tileops": ["other"]}))
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "pip uninstall other" in result.output


def test_json_is_all_that_json_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    import tileops.doctor.examination as examination

    monkeypatch.setattr(examination, "Machine", Fake)
    result = CliRunner().invoke(main, ["doctor", "--format", "json"])
    found = json.loads(result.stdout)
    assert found["broken"] is False
    assert {each["name"]: each["status"] for each in found["probes"]}["torch"] == "ok"
    assert found["cards"][0]["arch"] == 90


def test_this_machine_can_be_examined() -> None:
    diagnosis = examine()
    assert diagnosis.probes[0].name == "python"
    assert diagnosis.as_json()["probes"][0]["status"] == "ok"
