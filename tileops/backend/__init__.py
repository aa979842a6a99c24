"""Backends: kernels for ops of this package that come from elsewhere.

A backend gives an op another implementation of one of its kernel interfaces: for a device that the tree has
no kernel for, or a faster one for some calls. Nothing of the op changes, and the same proofs hold.

**Writing one.** Take the interface's docstring as the whole contract; it says shape, dtype, layout and device
of every tensor. Inherit it together with ``Kernel``, say which calls the class serves, and register it under
a key of its own::

    import torch
    from tileops.backend import register_kernel_type
    from tileops.kernels.kernel_base import Entry, Kernel
    from tileops.kernels.norm.call_spec import LayerNormCall, LayerNormFwdInterface


    class XpuLayerNormKernel(Kernel, LayerNormFwdInterface):
        devices = frozenset({"xpu"})              # device types it runs on; {"cuda"} unless stated

        def __init__(self, n: int, eps: float) -> None:
            self.n, self.eps = n, eps             # the constructor is the class's own affair

        @classmethod
        def refusal(cls, call: LayerNormCall) -> str | None:
            if call.n > 65536:                    # a function of the call alone: None, or the reason
                return f"n {call.n} is above 65536"
            return super().refusal(call)

        @classmethod
        def entry_for(cls, call: LayerNormCall) -> Entry:
            identity = (call.n, call.eps)         # everything that changes what is built
            return identity, lambda: cls(*identity)

        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            rows = torch.nn.functional.layer_norm(x.reshape(-1, self.n), (self.n,), eps=self.eps)
            return (rows * weight.reshape(-1) + bias.reshape(-1)).reshape(x.shape)


    register_kernel_type("LayerNormFwdOp", "layer_norm_xpu", XpuLayerNormKernel)

    op = LayerNormFwdOp()                         # ops constructed from now on have it
    op.key_for("layer_norm", LayerNormCall(n=64, device=torch.device("xpu")))  # 'layer_norm_xpu'

**Protocol.**

* The op is named by its class's ``__name__``; registering for an op says nothing about its subclasses.
  :func:`unclaimed` and ``tileops doctor`` list registrations for a name that no imported op has.
* Where the class serves calls that an implementation of the tree serves on the same device, one of the two is
  declared the winner: ``preferred_over = frozenset({"<the other's key>"})`` in the one that is to win. A
  ``general`` implementation loses to every other and needs no such line. An overlap without a winner fails
  the op's construction, with the smallest call that both serve.
* An op reads the registry when it is constructed. Objects that exist keep the kernels they have.
* The op builds one kernel for each device and build identity, with the device current, and runs it with the
  device current. The call states the facts of a CUDA device: ``arch``, ``sm_count``, ``smem_budget``.
* ``request_tune()`` is called once on each kernel of an op in tuned mode, never on the class.

**As a plug-in.** A distribution that registers through an entry point needs no import by the user::

    [project.entry-points."tileops.backends"]
    xpu = "my_package.backend:register"           # a callable without arguments

All such callables are called once, at the first op construction, in the order of their names.

**Errors.**

* :class:`BackendError`: the op has a registration under the key already; the message has both places.
* A direct registration that makes an op fail its construction checks: the op raises, see the table in
  :class:`~tileops.ops.op_base.Op`.
* A plug-in that raises, or whose kernels make an op fail its checks, is taken out with everything it
  registered. A ``RuntimeWarning`` names its distribution and says why, with the witness call of an overlap;
  :func:`load_failures` keeps the exception under the plug-in's name. With ``TILEOPS_PROOF=strict`` the
  construction raises it.
* :class:`OpNotAvailableError`: no implementation of an interface runs on a type of device.

**Asking.** ``op.key_for(interface, call)`` says which key runs, ``op.explain(interface, call)`` what each
implementation said, for any stated device on any machine. ``op.kernel_for(interface, call, key="...")`` gives
one implementation, for tests. ``tileops.backend.registry.sandbox()`` undoes a test's registrations.
"""

from tileops.backend.errors import BackendError, OpNotAvailableError
from tileops.backend.plugins import load_failures
from tileops.backend.registry import register_kernel_type, unclaimed

__all__ = ["BackendError", "OpNotAvailableError", "load_failures", "register_kernel_type", "unclaimed"]
