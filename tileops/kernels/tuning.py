"""Launches that were measured: the search of a table, and the file in which what it found is kept.

Which kernel serves a call is decided by rules and never by what is here. A kernel may be laid out in several ways that
compute the same; it has a bounded table of them, the usual one first. :func:`tune` measures the table on the card and
takes the fastest; :func:`recorded` is what a kernel asks when it is built, so that a second process starts tuned.

There is one file for each card, in the folder that ``TILEOPS_TUNING`` names: format, card and versions, and for each
kernel, build identity and arch the launch that was found. It is read when the first kernel of that card is built in a
process, and written when something is found. A launch that is not in the table is ignored, so that no file can make a
kernel do what its table does not hold. Whatever is wrong with the file is a warning, and the kernels run untuned.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import importlib.metadata
import json
import os
import re
import statistics
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from tileops import __version__

__all__ = ["FORMAT", "MOST_ENTRIES", "OFF", "VARIABLE", "WORTH", "Card", "Store", "key_of", "recorded", "tune"]

VARIABLE: Final = "TILEOPS_TUNING"
"""The environment variable that names the folder; read when the first kernel of a card is built."""
OFF: Final = "off"
"""Its value where nothing is to be read or written."""
FORMAT: Final = 1
"""The number of the file format."""
MOST_ENTRIES: Final = 1024
"""Launches that a file keeps; those that were found longest ago go."""
MOST_BYTES: Final = 4 * 2**20
"""Of a file; a longer one is none of ours: 1,024 entries take an eighth of it."""

WORTH: Final = 0.02
"""A launch is taken in place of the usual one where it saves more than this share of the time: two measurements of one
program differ by as much."""
MOST_ROUNDS: Final = 31
FEWEST_ROUNDS: Final = 5
ROUNDS_MS: Final = 500.0
"""Milliseconds that the rounds of one search may take, as long as they are not the fewest."""
FLUSHED_BYTES: Final = 256 * 2**20
"""What is written before each launch: several times the L2 cache of any card, and it takes longer than the host needs
to enqueue the launch, so that only device time is seen."""

Launch = TypeVar("Launch")
Work = Callable[[], object]
FAILURES: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    LookupError,
    ArithmeticError,
    AssertionError,
    ImportError,
)
"""What a candidate that does not compile or run raises: KernelBuildError, CUDA and TVM errors, a lack of memory, and
whatever the code that builds it finds wrong."""
PLAIN: Final = (bool, int, float, str, type(None))
"""What the fields of a launch may be: what is read from a file is then what was written."""


@dataclasses.dataclass(frozen=True)
class Card:
    """The card that kernels are built for and measured on.

    Attributes:
        name: As its driver has it.
        device: The current device.
    """

    name: str
    device: torch.device


def card_here() -> Card | None:
    """The current CUDA device; ``None`` where there is none."""
    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda", torch.cuda.current_device())
    return Card(torch.cuda.get_device_name(device), device)


@functools.cache
def versions_here() -> dict[str, str]:
    """The versions that a measured launch is good for."""
    return {
        "tileops": __version__,
        "tilelang": _tilelang(),
        "cuda": str(torch.version.cuda),
        "driver": _driver(),
    }


def _tilelang() -> str:
    try:
        return importlib.metadata.version("tilelang")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _driver() -> str:
    """The CUDA version of the driver, 13000 for 13.0: torch does not tell it."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return "none"
    return str(version.value)


def key_of(kernel: type, identity: Hashable, arch: int) -> str:
    """What an entry is found by; the ``repr`` of *identity* must be the same in every process."""
    return f"{kernel.__module__}.{kernel.__qualname__}{identity!r} sm_{arch}"


class Store:
    """What was found for one card.

    Attributes:
        path: The file, which need not be there.
        card: Name of the card.
        versions: Those that the launches are good for.
    """

    def __init__(self, path: Path, card: str, versions: Mapping[str, str]) -> None:
        self.path = path
        self.card = card
        self.versions = dict(versions)
        self._warned = False
        self._lock = threading.Lock()
        self._entries = self._on_file()

    def launch(self, key: str) -> Mapping[str, Any] | None:
        """The launch that was found for *key*: its fields, not checked against any table."""
        entry = self._entries.get(key)
        return None if entry is None else entry["launch"]

    def record(self, key: str, launch: Mapping[str, Any], microseconds: float, usual: float) -> None:
        """Keep what was found, here and in the file, beside what other processes have written meanwhile.

        Args:
            key: As :func:`key_of` has it.
            launch: The fields of the launch.
            microseconds: Its time.
            usual: The time of the usual launch.
        """
        entry = {"launch": dict(launch), "us": round(microseconds, 3), "usual_us": round(usual, 3)}
        with self._lock:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with _alone(self.path.parent):
                    self._entries = _bounded({**self._entries, **self._on_file()}, key, entry)
                    self._write()
            except OSError as error:
                self._entries = _bounded(self._entries, key, entry)
                self._warn(f"cannot be written ({error}): what was measured is good for this process alone")

    def _on_file(self) -> dict[str, dict[str, Any]]:
        """The entries of the file; none, with a warning, where it is not ours to read."""
        try:
            with self.path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            return self._entries_of(content)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self._warn(f"is ignored: {error or type(error).__name__}; the next tuning replaces it, or delete it")
            return {}

    def _entries_of(self, content: bytes) -> dict[str, dict[str, Any]]:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is longer than {MOST_BYTES} bytes")
        try:
            found = json.loads(content)
        except ValueError as error:
            raise ValueError(f"it is not JSON ({error})") from error
        expected = {"format": FORMAT, "card": self.card, "versions": self.versions}
        for name, value in expected.items():
            here = found.get(name) if isinstance(found, dict) else None
            if here != value:
                raise ValueError(f"its {name} is {_shortened(here)}, not {value!r}")
        entries: dict[str, dict[str, Any]] = found.get("entries")
        if not isinstance(entries, dict) or len(entries) > MOST_ENTRIES:
            raise ValueError(f"its entries are no table of {MOST_ENTRIES} at most")
        for key, entry in entries.items():
            if not (isinstance(entry, dict) and isinstance(entry.get("launch"), dict)):
                raise ValueError(f"its entry {_shortened(key)} has no launch")
        return entries

    def _write(self) -> None:
        """Put the file in its place whole; it has the permissions that the process gives new files."""
        content = {
            "format": FORMAT,
            "card": self.card,
            "versions": self.versions,
            "entries": self._entries,
        }
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            aside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            os.replace(aside, self.path)
        except OSError:
            with contextlib.suppress(OSError):  # the first error tells more
                aside.unlink(missing_ok=True)
            raise

    def _warn(self, what: str) -> None:
        """Warn once of this file."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"the tuning file {self.path} {what}", RuntimeWarning, stacklevel=2)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _bounded(entries: Mapping[str, dict[str, Any]], key: str, entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """*entries* with *entry* as the newest, without the oldest where they are too many."""
    kept = {name: each for name, each in entries.items() if name != key}
    for name in list(kept)[: max(0, len(kept) + 1 - MOST_ENTRIES)]:
        del kept[name]
    return {**kept, key: entry}


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into *folder* meanwhile.

    Where its file system has no locks, two that write at once may lose what one of them found; no file is torn.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


_stores: dict[str, Store | None] = {}
_opening = threading.Lock()
_measuring = threading.Lock()
"""Held while something is measured: two searches at once would see each other's time."""


@functools.cache
def folder_here() -> Path | None:
    """Where the files stand, as the environment has it when it is first asked; ``None`` where there are to be none."""
    value = os.environ.get(VARIABLE, "")
    if value:
        return None if value == OFF else Path(value)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):  # a relative one is to be ignored, as the XDG directory specification has it
        return Path(cache, "tileops", "tuning")
    home = os.path.expanduser("~")
    return Path(home, ".cache", "tileops", "tuning") if os.path.isabs(home) else None


def store_of(card: Card) -> Store | None:
    """What was found for *card*, read from its file when it is first asked for."""
    with _opening:
        if card.name not in _stores:
            folder = folder_here()
            name = re.sub(r"[^a-z0-9]+", "-", card.name.lower()).strip("-")
            _stores[card.name] = (
                None if folder is None else Store(folder / f"{name or 'card'}.json", card.name, versions_here())
            )
        return _stores[card.name]


def recorded(key: str, table: Sequence[Launch]) -> Launch | None:
    """The launch of *table* that is on file for *key* and the current card; ``None`` where none is.

    Args:
        key: As :func:`key_of` has it.
        table: Dataclasses.

    Raises:
        TypeError: a launch is no dataclass of numbers, booleans and texts.
    """
    if len(table) < 2 or folder_here() is None:
        return None
    _check(key, table)
    card = card_here()
    return None if card is None else _in_table(store_of(card), key, table)


def _check(key: str, table: Sequence[Any]) -> None:
    """See that what is found of *table* can be written down and found again.

    Raises:
        TypeError: a launch is no dataclass of plain values.
    """
    for launch in table:
        if not dataclasses.is_dataclass(launch) or isinstance(launch, type):
            raise TypeError(f"the table of {key} holds {launch!r}, which is no dataclass object")
        for name, value in dataclasses.asdict(launch).items():
            if type(value) not in PLAIN:
                raise TypeError(
                    f"the table of {key} holds {launch!r}, whose {name} is a {type(value).__name__}: "
                    f"a launch holds numbers, booleans and texts"
                )


def _in_table(store: Store | None, key: str, table: Sequence[Any]) -> Any:
    fields = None if store is None else store.launch(key)
    return next((each for each in table if fields is not None and dataclasses.asdict(each) == fields), None)


def tune(key: str, table: Sequence[Launch], works: Callable[[torch.device], Callable[[Launch], Work]]) -> Launch | None:
    """The launch of *table* to use on the current card: the one on file, else the fastest, which is put on file.

    A candidate that does not compile or run is left out, with a warning. Where nothing can be measured (the usual
    launch does not run, memory is short, or the current stream is being captured) that is a warning too, and the
    caller keeps what it has.

    Args:
        key: As :func:`key_of` has it.
        table: Dataclasses, the usual launch first.
        works: From the device to what compiles a launch and returns a call that launches it on scratch tensors.

    Returns:
        A launch of *table*; ``None`` where there is nothing to choose from, no card, or nothing was measured.

    Raises:
        TypeError: a launch is no dataclass of numbers, booleans and texts.
    """
    card = card_here()
    if card is None or len(table) < 2:
        return None
    _check(key, table)
    store = store_of(card)
    with _measuring:
        known: Launch | None = _in_table(store, key, table)
        if known is not None:
            return known
        try:
            running, times = _measured(key, table, works, card.device)
        except FAILURES as error:
            warnings.warn(f"{key} is not tuned: {error}", RuntimeWarning, stacklevel=2)
            return None
        place = fastest(times)
        if store is not None:
            store.record(key, dataclasses.asdict(running[place]), times[place], times[0])  # type: ignore[call-overload]
        return running[place]


def _measured(
    key: str, table: Sequence[Launch], works: Callable[[torch.device], Callable[[Launch], Work]], device: torch.device
) -> tuple[list[Launch], list[float]]:
    """The launches that run, the usual one first, and their microseconds."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("the current stream is being captured; call the op once before")
    work_of = works(device)
    running: dict[int, Work] = {}
    for i, launch in enumerate(table):
        try:
            work = work_of(launch)
            work()
        except FAILURES as error:
            if i == 0:
                raise
            warnings.warn(f"{key} is tuned without {launch}: {error}", RuntimeWarning, stacklevel=2)
        else:
            running[i] = work
    return [table[i] for i in running], timed(list(running.values()))


def fastest(times: Sequence[float]) -> int:
    """The place of the shortest time; 0, the usual launch, where that saves no more than :data:`WORTH`."""
    place = min(range(len(times)), key=times.__getitem__)
    return place if times[place] < times[0] * (1.0 - WORTH) else 0


def timed(works: Sequence[Work]) -> list[float]:
    """Median microseconds of each on the current stream, with a cold L2 cache.

    They take turns, so that a clock that rises or falls meanwhile is the same to all.
    """
    flushed = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device="cuda")
    stream = torch.cuda.current_stream()

    def rounds(count: int) -> list[list[float]]:
        taken = []
        for _ in range(count):
            for work in works:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                flushed.zero_()
                start.record()
                work()
                end.record()
                taken.append((start, end))
        stream.synchronize()
        each = [start.elapsed_time(end) for start, end in taken]
        return [each[i :: len(works)] for i in range(len(works))]

    warm = sum(times[-1] for times in rounds(3))
    count = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(ROUNDS_MS / max(warm, 1e-3))))
    return [statistics.median(times) * 1e3 for times in rounds(count)]
