"""``python -m tileops`` is the ``tileops`` command."""

from tileops.cli import main

main(prog_name="python -m tileops")
