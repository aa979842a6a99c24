"""What this machine has and lacks, and which implementations can run on it.

:func:`examine` looks and returns a :class:`Diagnosis`; ``tileops doctor`` prints it. A probe that fails says
why in its own line and never stops the others.
"""

from tileops.doctor.diagnosis import Card, Diagnosis, Implementation, Probe, Status
from tileops.doctor.examination import examine
from tileops.doctor.machine import Machine
from tileops.doctor.report import command

__all__ = ["Card", "Diagnosis", "Implementation", "Machine", "Probe", "Status", "command", "examine"]
