"""The README says what is so: its code runs, its texts are what the library prints, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TESTED = re.findall(r"<!-- tested:[^\n]*-->\n```python\n(.*?)```", README, re.DOTALL)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_example_of_adding_a_kernel_runs_and_is_chosen() -> None:
    asked = (
        "\nfrom tileops.ops import GQADenseFwdOp\nfrom tileops.kernels.attention.call_spec import AttentionCall\n"
        "print(GQADenseFwdOp().key_for('gqa_dense', AttentionCall(arch=90, seqlen_kv=512)))"
    )
    done = run(TESTED[0] + asked)
    assert done.stdout.strip() == "short_decode", done.stderr


def test_without_its_preference_the_example_fails_as_the_first_screen_shows() -> None:
    without = "\n".join(line for line in TESTED[0].splitlines() if "preferred_over" not in line)
    done = run(without + "\nfrom tileops.ops import GQADenseFwdOp\nGQADenseFwdOp()")
    shown = words(README.split("```text\n")[1].split("```")[0])
    said = words(done.stderr)
    for part in re.split(r"\([\w/.]+:\d+\)", shown):
        assert part.strip().removeprefix("UnorderedOverlapError: ") in said
    (ours,) = re.findall(r"tileops/[\w/.]+:\d+", shown)
    assert ours in said, "the place in this tree is where the class stands now"


def test_the_example_over_any_dataclass_finds_the_call_it_names() -> None:
    done = run(TESTED[1] + "\nprint(report.findings[0].witness)")
    assert done.stdout.strip() == "Call(n=0)", done.stderr


def test_the_page_of_ops_names_every_op_and_interface_and_its_example_runs() -> None:
    import tileops.ops

    page = (ROOT / "docs" / "ops.md").read_text()
    ops = {name: kind for name, kind in vars(tileops.ops).items() if getattr(kind, "interfaces", None)}
    assert len(ops) >= 10
    for name, kind in ops.items():
        assert f"`{name}(" in page
        assert all(f"`{interface}`" in page for interface in kind.interfaces), name
    (example,) = re.findall(r"<!-- tested:[^\n]*-->\n```python\n(.*?)```", page, re.DOTALL)
    given = (
        "\nimport torch.nn.functional as F\nt = [e.clone().requires_grad_() for e in (x, weight, bias)]"
        "\nF.batch_norm(t[0], None, None, t[1], t[2], True).backward(grad)"
        "\npairs = zip((grad_x, grad_weight, grad_bias), t)"
        "\nprint(all(torch.allclose(a, e.grad, atol=1e-5) for a, e in pairs), running_mean.abs().sum() > 0)"
    )
    done = run(example + given)
    assert done.stdout.strip() == "True tensor(True)", done.stderr


@pytest.mark.parametrize("command", ["explain", "audit"])
def test_the_first_screen_shows_what_the_commands_print(command: str) -> None:
    if command == "explain":
        block = README.split("```console\n")[1].split("```")[0]
        line, shown = block.split("\n", 1)
        arguments = line.removeprefix("$ tileops ").split()
    else:
        shown = README.split("```text\n")[2].split("```")[0]
        arguments = ["audit", "--strict", "tileops.ops"]
    done = subprocess.run(
        [sys.executable, "-m", "tileops", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert words(done.stdout).endswith(words(shown))


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
