"""Grouped-query attention kernels."""
