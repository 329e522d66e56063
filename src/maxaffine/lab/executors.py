"""Where units run: in this process, in processes of this machine (loky), or on a Dask cluster.

All three are `concurrent.futures.Executor`s; the run itself does not know which one it has.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from maxaffine.core.errors import BadInput

Opened = tuple[Executor, int]  # the executor, and how many units to have under way at once
Opener = Callable[[], AbstractContextManager[Opened]]

WATCH = 0.5  # seconds between a worker's looks at its parent
PATIENCE = "20s"  # for the scheduler of a cluster to answer


class InProcess(Executor):
    """Runs a call when it is submitted, here and now."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future that is done already; an interrupt goes through to the caller."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as failure:
            future.set_exception(failure)
        return future


@contextmanager
def in_process() -> Iterator[Opened]:
    """This process."""
    yield InProcess(), 1


def _leave_with(parent: int) -> None:
    """End this worker soon after the process that started it is gone, however that one ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def processes(workers: int) -> Opener:
    """That many processes of this machine, which share its cores."""
    if workers < 1:
        raise BadInput(f"`--workers` (={workers}) must be at least 1.")
    if workers == 1:
        return in_process
    try:
        from loky import ProcessPoolExecutor
    except ModuleNotFoundError:
        raise BadInput("`--workers` needs loky; install maxaffine[lab], or leave the option out.") from None

    @contextmanager
    def opened() -> Iterator[Opened]:
        threads = str(max(1, (os.cpu_count() or 1) // workers))
        pool = ProcessPoolExecutor(
            max_workers=workers, env={"OMP_NUM_THREADS": threads}, initializer=_leave_with, initargs=(os.getpid(),)
        )
        finished = False
        try:
            yield pool, workers
            finished = True
        finally:
            pool.shutdown(wait=True, kill_workers=not finished)

    return opened


def cluster(address: str) -> Opener:
    """A Dask cluster, by the address of its scheduler; a worker that dies has its units done by another."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise BadInput("`--dask` needs distributed; install maxaffine[dask], or use --workers.") from None

    @contextmanager
    def opened() -> Iterator[Opened]:
        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as failure:
            reason = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
            raise BadInput(
                f"`--dask` (={address!r}): no scheduler answers there ({reason}); start one with `dask scheduler`."
            ) from None
        try:
            threads = sum(client.nthreads().values())
            if threads == 0:
                raise BadInput(f"`--dask` (={address!r}): the cluster has no workers; start some with `dask worker {address}`.")
            yield client.get_executor(pure=False), 2 * threads
        finally:
            client.close()

    return opened
