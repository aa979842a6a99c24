"""Operators whose kernel choice is proved: TileLang kernels for CUDA, torch references for CPU."""

__version__ = "0.1.0"
