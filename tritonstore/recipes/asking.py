"""Ask PyTorch the questions of recipes: through a store, so that it learns the answers, or past it, to compare.

What becomes of a recipe, in a word:

    known        prewarm: the store had today's answer already, or another worker gave it meanwhile
    answered     prewarm: PyTorch was asked, and the answer is stored
    same         recompute: PyTorch says what the entry says
    differs      recompute: it does not
    elsewhere    recompute: the entry was made by another toolchain, so it cannot be asked again here
    changed      recompute: today's question is another one (source, target, …)
    quarantined  the answer was found to be wrong before, and is neither used nor stored
    unproven     PyTorch's analysis failed, which says nothing and is not stored
    bypass       today the call has no key
    lost: WHY    it could not be rebuilt; WHY is a reason of `rebuild.NotRebuilt`
    failed       PyTorch or the store raised
    died         the worker process ended over it (see workers.py)
"""

from __future__ import annotations

from typing import Any

from tritonstore import keys
from tritonstore.access import AccessResult
from tritonstore.errors import Bypass
from tritonstore.keys.integrity import snapshot
from tritonstore.keys.toolchain import toolchain
from tritonstore.pytorch.install import ask_through
from tritonstore.pytorch.rebuild import NotRebuilt, rebuild
from tritonstore.pytorch.session import Session
from tritonstore.recipes.recipe import Recipe
from tritonstore.settings import Settings
from tritonstore.store import AnalysisStore, open_settings

__all__ = ["PREWARM", "RECOMPUTE", "Asker"]

PREWARM, RECOMPUTE = "prewarm", "recompute"

Said = tuple[str, str, float]
"""(status, text, seconds)"""


class Asker:
    """Asks under `settings`, whose target, if there is one, stands for that of every recipe."""

    def __init__(self, settings: Settings, purpose: str) -> None:
        self._settings = settings
        self._purpose = purpose
        if purpose == RECOMPUTE:
            # A store that holds nothing: each question goes to PyTorch, and the answer is proven as ever.
            settings = settings._replace(urls=("memory:",), mode="readwrite")
        self._store: AnalysisStore = open_settings(settings._replace(verify=0.0))
        self._session: Session | None = None
        self._target = ""

    def ask(self, recipe: Recipe) -> Said:
        """What became of it. Raises nothing but KeyboardInterrupt."""
        try:
            if self._purpose == RECOMPUTE and recipe.parts.get("toolchain") != _toolchain():
                return "elsewhere", "", 0.0
            self._aim(recipe)
            return self._ask(recipe)
        except NotRebuilt as error:
            return f"lost: {error.reason}", str(error), 0.0
        except Bypass as bypass:
            return "bypass", f"{bypass.reason}: {bypass.detail}" if bypass.detail else bypass.reason, 0.0
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"[:500], 0.0

    def _aim(self, recipe: Recipe) -> None:
        """Declare the target, and take back the one before. A GPU at hand need not be the one that is asked about."""
        wanted = ":".join(map(str, self._settings.target)) if self._settings.target else recipe.target
        if wanted != self._target:
            if self._session is not None:
                self._session.close()
            settings = Settings.load({}, target=wanted, prefer_target=True)
            chosen = self._store.settings._replace(target=settings.target, prefer_target=True)
            self._session = Session(chosen, self._store, observed=False)
            self._target = wanted

    def _ask(self, recipe: Recipe) -> Said:
        assert self._session is not None
        self._session.close()  # a module may ask for the real driver when it is imported
        kernel, arguments = rebuild(recipe)
        self._session.declare()
        key = keys.call_key(kernel, arguments)
        if self._purpose == RECOMPUTE and key.digest != recipe.digest:
            odd = ", ".join(part for part in keys.PARTS if key.parts[part] != recipe.parts.get(part))
            return "changed", f"another {odd} today", 0.0
        if self._store.set_aside(key.digest):
            return "quarantined", "", 0.0
        before = self._store.counters.snapshot()
        ask_through(self._session, (kernel, arguments, {}))
        after = self._store.counters.snapshot()
        seconds = after["seconds_analysing"] - before["seconds_analysing"]
        found = self._store.lookup(key)
        if found is None:
            unproven = [name for name, n in after["unproven"].items() if n != before["unproven"].get(name, 0)]
            return "unproven", ", ".join(unproven), seconds
        if self._purpose == RECOMPUTE:
            said = _plain(found)
            return ("same", "", seconds) if said == recipe.access else ("differs", _shown(said), seconds)
        if after["analyses"] == before["analyses"]:
            return "known", "", 0.0
        if after["publishes"] == before["publishes"]:
            return "failed", "PyTorch answered, but the answer could not be stored", seconds
        return "answered", "", seconds


def _toolchain() -> str:
    return toolchain(snapshot()).digest


def _plain(access: AccessResult) -> list[Any]:
    return [None if access.reads is None else list(access.reads), list(access.writes), access.can_fuse_epilogue]


def _shown(said: list[Any]) -> str:
    reads, writes, fuse = said
    names = "" if reads is None else f"reads {', '.join(reads) or 'nothing'}; "
    return f"PyTorch says: {names}writes {', '.join(writes) or 'nothing'}; can fuse an epilogue: {fuse}"
