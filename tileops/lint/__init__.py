"""Checks of source text, for this repository and for packages that follow its contract."""
