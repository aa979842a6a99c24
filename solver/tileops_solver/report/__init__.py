"""An audit's report as text and as JSON."""
