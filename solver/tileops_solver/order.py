"""The preference graph, in networkx: an edge from each implementation to those it is preferred over."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import networkx as nx

__all__ = ["closure", "cycles", "preference_graph"]


def preference_graph(preferred_over: Mapping[str, Collection[str]], general: Collection[str] = ()) -> nx.DiGraph[str]:
    """The graph of declared preferences.

    Args:
        preferred_over: For each key, the keys that it is preferred over.
        general: The general keys; every other key has an edge to them.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(sorted(preferred_over))
    graph.add_edges_from((key, other) for key in sorted(preferred_over) for other in sorted(preferred_over[key]))
    below = sorted(general)
    graph.add_edges_from((key, other) for key in sorted(preferred_over) if key not in below for other in below)
    return graph


def cycles(graph: nx.DiGraph[str]) -> tuple[tuple[str, ...], ...]:
    """The sets of keys that are preferred over each other in a circle, each sorted, in order.

    These are the strongly connected components of more than one key. A key that prefers itself is an error of
    its own.
    """
    found = (sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1)
    return tuple(sorted(map(tuple, found)))


def closure(graph: nx.DiGraph[str]) -> dict[str, frozenset[str]]:
    """For each key, the keys it wins over: directly or through others."""
    reached = nx.transitive_closure(graph, reflexive=False)
    return {key: frozenset(reached.successors(key)) for key in sorted(graph)}
