"""Put the store between PyTorch and its analysis, all or nothing, and take it out again exactly.

What people call:

    install(store=None, **settings)     settings as in `Settings.load`; raises SeamError, SettingsError
    uninstall()
    installed(store=None, **settings)   a context manager; what was installed before comes back
    stats()                             what happened in this process
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tritonstore.errors import SeamError
from tritonstore.forks import reset_in_children
from tritonstore.pytorch import ANALYSIS_MODULE
from tritonstore.pytorch import seam as seams
from tritonstore.pytorch.answers import answers_of
from tritonstore.pytorch.notice import notice
from tritonstore.pytorch.outcome import Watch
from tritonstore.pytorch.session import Session
from tritonstore.recipes import ahead
from tritonstore.settings import Settings


def install(store: Any = None, **settings: Any) -> None:
    """Answer PyTorch's question from `store` (an AnalysisStore; default: the one that the settings name).

    Every name that is needed is checked before anything is changed, and a failing step undoes those before
    it. Installing the same again does nothing; another store or other settings take the place of the present
    ones. The store is opened at the first question. Raises SeamError for an unknown PyTorch, SettingsError
    for a bad setting.
    """
    session = _session(store, settings)
    ahead.start(session.settings)
    _installer.install(session)


def install_default() -> None:
    """`install()` with the environment's settings; a store that the program itself has installed stays."""
    if _installer.session is None:
        install()


def uninstall() -> None:
    """Make PyTorch what it was before `install()`; does nothing if nothing is installed.

    Where another cache has patched over ours, a wrapper that only passes on is left in place, and a warning
    says so.
    """
    _installer.uninstall()


@contextlib.contextmanager
def installed(store: Any = None, **settings: Any) -> Iterator[None]:
    """`install()` for the block, then back to what was before, be it nothing or another store."""
    session = _session(store, settings)
    ahead.start(session.settings)
    before = _installer.swap(session)
    try:
        yield
    finally:
        _installer.restore(before)
        session.close()


def stats() -> dict[str, Any]:
    """The counters of the installed store (see counters.py); empty when nothing is installed."""
    session = active()
    return {} if session is None else session.counters.snapshot()


def active() -> Session | None:
    """What is installed in this process; None where nothing is."""
    return _installer.session


def ask_through(session: Session, question: tuple[Any, Any, Any]) -> Any:
    """What PyTorch says to ``(kernel, kwargs, TMA metadata)`` by way of `session`, which stays installed."""
    _installer.install(session)
    patch = _installer.patch
    return getattr(patch.seam.module, patch.seam.entry)(*question)


def _session(store: Any, settings: dict[str, Any]) -> Session:
    if store is None:
        return Session(Settings.load(**settings))
    values = store.settings._asdict()
    del values["origins"]
    return Session(Settings.load(**{**values, **settings}) if settings else store.settings, store)


class Patch:
    """The wrappers in one PyTorch module. While `session` is None they only pass on."""

    def __init__(self, seam: seams.Seam) -> None:
        self.seam = seam
        self.watch = Watch(seam)
        self.answers = answers_of(seam)
        self.session: Session | None = None
        self.original: Callable[..., Any] = getattr(seam.module, seam.entry)
        self._changes: list[tuple[str, Any, Any]] = []

    def apply(self) -> None:
        """Patch all names or, if a step fails, none. The entry is last: no call meets a half-made patch."""
        module = self.seam.module
        try:
            for name in (*self.seam.observed, self.seam.entry):
                original = getattr(module, name)
                wrapper = self._entry() if name == self.seam.entry else self.watch.wrap(name, original)
                self._changes.append((name, original, wrapper))
                setattr(module, name, wrapper)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> list[str]:
        """Put the originals back; returns the names that somebody else has patched over, which stay."""
        left = []
        for name, original, wrapper in reversed(self._changes):
            present = getattr(self.seam.module, name, None)
            if present is wrapper:
                setattr(self.seam.module, name, original)
            elif present is not original:
                left.append(name)
        self._changes.clear()
        return left

    def _entry(self) -> Callable[..., Any]:
        original = self.original

        @functools.wraps(original)
        def entry(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any) -> Any:
            session = self.session
            question = (kernel, kwargs, tma_descriptor_metadata)
            return original(*question) if session is None else session.answer(self, question)

        return entry


class Installer:
    """At most one patch in a process."""

    def __init__(self) -> None:
        self._patch: Patch | None = None
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    @property
    def patch(self) -> Patch:
        """What stands in PyTorch. Raises RuntimeError where nothing does."""
        if self._patch is None:
            raise RuntimeError("tritonstore is not installed")
        return self._patch

    @property
    def session(self) -> Session | None:
        patch = self._patch
        return None if patch is None else patch.session

    def install(self, session: Session) -> None:
        """Make `session` the present one and close the one before; does nothing if that one is the same."""
        module = _module()  # not under our lock: another thread may be in autoload's hook of this import
        with self._lock:
            if self.session is not None and self.session.same(session):
                return
            before = self._put(session, module)
        if before is not None:
            before.close()

    def swap(self, session: Session) -> Session | None:
        """Make `session` the present one; returns the one before, which stays open."""
        module = _module()
        with self._lock:
            return self._put(session, module)

    def restore(self, before: Session | None) -> None:
        """Undo a `swap`."""
        if before is None:
            self.uninstall()
            return
        with self._lock:
            if self._patch is not None:
                self._patch.session = before

    def uninstall(self) -> None:
        with self._lock:
            patch, self._patch = self._patch, None
            if patch is None:
                return
            session, patch.session = patch.session, None
            left = patch.remove()
        if session is not None:
            session.close()
        if left:
            notice(f"{', '.join(left)}: patched over by others, so wrappers that only pass on stay there")

    def _put(self, session: Session, module: Any) -> Session | None:
        if self._patch is None:
            patch = Patch(seams.find(module))
            patch.session = session
            patch.apply()
            self._patch = patch
            return None
        before, self._patch.session = self._patch.session, session
        return before


def _module() -> Any:
    try:
        return importlib.import_module(ANALYSIS_MODULE)
    except ImportError as error:
        text = f"PyTorch's {ANALYSIS_MODULE} cannot be imported: {error}"
        raise SeamError(text, missing=(ANALYSIS_MODULE,)) from error


_installer = Installer()
