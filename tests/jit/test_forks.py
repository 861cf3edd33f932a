"""A child that is forked while another thread of its parent holds a lock finds it free."""

from __future__ import annotations

import os
import threading

import pytest

from opgraft.jit import forks


@pytest.mark.parametrize("make", [forks.lock, forks.rlock])
def test_a_lock_is_free_in_a_forked_child_and_still_held_in_its_parent(make):
    lock, held, done = make(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        with_it = lock.acquire(timeout=30)
        lock.release()
        os._exit(0 if with_it else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not lock.acquire(blocking=False)
    finally:
        done.set()
        holder.join()
    assert lock.acquire(blocking=False)
