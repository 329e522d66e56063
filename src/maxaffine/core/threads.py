"""One BLAS thread while a layer is compiled or checked: its matrices are small, and threads that wait only spin."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, linear algebra runs on one thread; afterwards on as many as before.

    In the main thread alone: the number belongs to the process, OpenBLAS ignores what other threads ask for, and whoever is the
    last of several to leave could not put it back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
