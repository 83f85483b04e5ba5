from __future__ import annotations

import gc
import os
import weakref

from tritonstore.forks import reset_in_children


class Counted:
    resets = 0

    def _after_fork(self) -> None:
        self.resets += 1


def test_the_child_is_reset_and_the_parent_is_not() -> None:
    target = Counted()
    reset_in_children(target)
    reset_in_children(target)
    child = os.fork()
    if child == 0:
        os._exit(target.resets)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert target.resets == 0


def test_registering_keeps_nothing_alive() -> None:
    target = Counted()
    reset_in_children(target)
    reference = weakref.ref(target)
    del target
    gc.collect()
    assert reference() is None
