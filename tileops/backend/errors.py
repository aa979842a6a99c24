"""Errors of backends: an op without a kernel for a device, and a backend that cannot be taken in."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BackendError", "OpNotAvailableError"]


class BackendError(RuntimeError):
    """A backend did something that cannot be taken in.

    Attributes:
        op_name: The op class it concerns, or None.
        key: The key it concerns, or None.
        places: ``file:line`` of each registration that takes part, the earlier one first.
        plugin: Name of the plug-in, or None.
        distribution: Distribution of the plug-in, with its version, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        op_name: str | None = None,
        key: str | None = None,
        places: tuple[str, ...] = (),
        plugin: str | None = None,
        distribution: str | None = None,
    ) -> None:
        super().__init__(message)
        self.op_name = op_name
        self.key = key
        self.places = places
        self.plugin = plugin
        self.distribution = distribution


class OpNotAvailableError(RuntimeError):
    """No kernel of an op's interface runs on the call's type of device.

    Attributes:
        op: Name of the op class.
        interface: Name of the interface.
        device: Type of the device (``"cpu"``).
        devices: For each key, the device types it runs on.
    """

    def __init__(self, op: str, interface: str, device: str, devices: Mapping[str, frozenset[str]]) -> None:
        runs = "; ".join(f"{key} runs on {', '.join(sorted(types))}" for key, types in sorted(devices.items()))
        other = (
            "call tileops.reference.install() (after import tileops) and construct the op again"
            if device == "cpu"
            else f"register a kernel whose devices hold {device!r} (tileops.backend.register_kernel_type) "
            f"and construct the op again"
        )
        super().__init__(
            f"{op}.{interface}: in-tree kernels do not run on {device} ({runs or 'there is none'}): "
            f"{other}, or move the tensors to a device that is listed"
        )
        self.op = op
        self.interface = interface
        self.device = device
        self.devices = dict(devices)
