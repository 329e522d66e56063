"""One BLAS thread while a layer is compiled or checked: its matrices are small, and threads that wait for each other only spin.

The number of threads belongs to the whole process.  So whoever enters first sets it, and whoever leaves last puts back what was
there, in whatever order threads come and go.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, linear algebra runs on one thread; afterwards on as many as before."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            from threadpoolctl import threadpool_limits

            _limit = threadpool_limits(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()
