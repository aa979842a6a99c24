"""``python -m tileops_solver`` is the part of the ``tileops`` command that needs no torch."""

from tileops_solver.cli import main

main(prog_name="python -m tileops_solver")
