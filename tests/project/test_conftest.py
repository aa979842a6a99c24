from __future__ import annotations

from pathlib import Path

import pytest

from tileops.kernels import tilelang_build

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


@pytest.fixture
def compile_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini("[pytest]\nmarkers =\n    compile: needs nvcc\n    gpu: needs a GPU\n")
    pytester.makepyfile("import pytest\n@pytest.mark.compile\ndef test_it(): pass\ndef test_other(): pytest.skip('no')")
    monkeypatch.setattr(tilelang_build, "nvcc_path", lambda: None)
    return pytester


def test_a_compile_test_without_nvcc_is_skipped_with_the_reason(
    compile_test: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEOPS_REQUIRE_NVCC", raising=False)
    result = compile_test.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*there is no nvcc*"])


def test_that_skip_is_a_failure_where_nvcc_is_required(
    compile_test: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEOPS_REQUIRE_NVCC", "1")
    result = compile_test.runpytest_inprocess()
    # Setup fails, which pytest counts as an error; the ordinary skip stays one.
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*this compile test must run: *there is no nvcc*"])
