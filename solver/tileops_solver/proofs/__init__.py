"""Proofs on file: answers that need not be found again, beside the package whose rules they are about.

One small sorted file an op, ``proofs/<Op>.json`` in the folder of the op's top-level package, one answer a line.
An answer is found again under a key over everything that it depends on: the question itself, node by node; what
its fields range over; the table of archs; the version of the encoding; and the version of z3. Whatever changes in
a rule changes the key, and the question is asked as if it had never been.

Only proofs that there is no call, and calls that were found, are on file; what was not decided never is. A call
that was found is built again and run through the rules and the original functions before it counts.

Files are written by ``tileops audit --write-proofs`` and by nothing else. ``store``, ``keys`` and ``z3_version``, which
are all that construction needs, import neither z3 nor networkx nor anything else of the solver.
"""
