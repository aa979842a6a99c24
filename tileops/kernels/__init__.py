"""Kernels by family: what each is called with, which calls it serves, how it is built."""
