"""Which calls get another implementation than before: two sets of rules, compared call by call.

:func:`~tileops_solver.diffing.comparing.differences` compares two snapshots; ``changes`` holds what it finds.
"""
