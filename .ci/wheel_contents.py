"""Build the sdist, and the wheel from it, and check what is inside: three typed packages, the proofs, nothing else.

Run from anywhere with an interpreter that has ``build`` and ``setuptools``. Exit code 0 when the contents are
right, 1 when they are not, with one line for each thing that is wrong.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"tileops": ".", "tileops_rules": "rules", "tileops_solver": "solver"}


def main() -> int:
    """Build from a copy of the files that git knows or would take, so that no stale build folder leaks in."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        copy_tree(ROOT, tree)
        output = Path(scratch) / "dist"
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(tree)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            return 1
        (wheel,) = output.glob("*.whl")
        (sdist,) = output.glob("*.tar.gz")
        problems = wheel_problems(wheel_names(wheel), expected_files(tree)) + sdist_problems(sdist)
        for problem in problems:
            sys.stdout.write(f"{problem}\n")
        if not problems:
            sys.stdout.write(f"{wheel.name}: {len(wheel_names(wheel))} files, {', '.join(PACKAGES)}\n")
        return 1 if problems else 0


def copy_tree(source: Path, target: Path) -> None:
    """Copy what ``git ls-files`` lists in *source*, tracked or not ignored, to *target*."""
    command = ["git", "-C", str(source), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)


def expected_files(tree: Path) -> set[str]:
    """Return the names under which the packages' Python files and proofs of *tree* must be in the wheel."""
    return {
        path.relative_to(tree / folder).as_posix()
        for package, folder in PACKAGES.items()
        for pattern in ("*.py", "proofs/*.json")
        for path in (tree / folder / package).rglob(pattern)
    }


def wheel_names(wheel: Path) -> list[str]:
    """Return the files in *wheel*."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def wheel_problems(names: list[str], expected: set[str]) -> list[str]:
    """Return what is wrong with a wheel that holds *names* and should hold *expected*."""
    problems = []
    for name in names:
        top, *rest = PurePosixPath(name).parts
        if top.endswith(".dist-info"):
            continue
        if top not in PACKAGES:
            problems.append(f"unexpected top-level name {top!r} in the wheel: {name}")
        elif any(part in ("tests", "test") or part.startswith("test_") for part in rest):
            problems.append(f"a test in the wheel: {name}")
        elif not name.endswith((".py", "/py.typed")) and not PurePosixPath(name).match("proofs/*.json"):
            problems.append(f"neither a module nor py.typed nor a proof in the wheel: {name}")
    for required in sorted(expected | {f"{package}/py.typed" for package in PACKAGES}):
        if required not in names:
            problems.append(f"missing from the wheel: {required} (does its folder have an __init__.py?)")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        problems.append("missing from the wheel: LICENSE")
    return problems


def sdist_problems(sdist: Path) -> list[str]:
    """Return what is missing from *sdist*."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    required = ("pyproject.toml", "README.md", "LICENSE")
    return [f"missing from the sdist: {name}" for name in required if name not in names]


if __name__ == "__main__":
    sys.exit(main())
