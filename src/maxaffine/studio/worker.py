"""The process beside a page: it compiles, turns, looks at and exports one layer, within limits of memory and time.

The page sends (name, arguments) and gets ("progress", ..) any number of times, then ("done", data), ("refused", sentence, remedy)
or ("failed", sentence).  A page that goes away closes the pipe, and the process ends; one that is cancelled is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from maxaffine.core.errors import MaxaffineError, Refused, rounded_up
from maxaffine.studio.ask import Ask

MEMORY = 6 << 30  # address space of the process, most of it never touched
LAYER = 1 << 30  # what a compile may plan with
SECONDS = 120.0  # of one request
MOST_KEYS = 65_536  # of a grid that is asked for by its cells
TABLE = 2_000_000  # bytes of a table that is dropped on the page


class Worker:
    """One process and what it was asked last."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None
        self.since: float | None = None  # when the request under way began

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self.since is not None

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and bool(self._process.is_alive())

    def ask(self, name: str, *arguments: Any) -> None:
        """Begin a request; the process is started where there is none."""
        if not self.alive:
            self.stop()
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(theirs,), daemon=True, name="maxaffine-studio-worker")
            self._process.start()
            theirs.close()
        assert self._pipe is not None
        self._pipe.send((name, arguments))
        self.since = time.monotonic()

    def heard(self) -> list[tuple[Any, ...]]:
        """What came since the last call; the last of it ends the request where it is no progress."""
        found: list[tuple[Any, ...]] = []
        if self._pipe is None or self.since is None:
            return found
        try:
            while self._pipe.poll():
                found.append(self._pipe.recv())
        except (EOFError, OSError):
            found.append(("failed", "the process ended: it may have needed more memory than it is allowed."))
            self.stop()
        if self.since is not None and time.monotonic() - self.since > SECONDS + 30.0:
            found.append(("failed", f"stopped after {SECONDS:g} seconds."))
            self.stop()
        if found and found[-1][0] != "progress":
            self.since = None
        return found

    def stop(self) -> None:
        """Kill the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join(5.0)
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = self.since = None


def serve(pipe: Connection) -> None:
    """The process: answer requests until the other end of the pipe is closed."""
    _limited()
    bench = Bench(pipe)
    lock = threading.Lock()
    queue: list[tuple[str, tuple[Any, ...]]] = []
    arrived = threading.Condition(lock)

    def listen() -> None:
        while True:
            try:
                asked = pipe.recv()
            except (EOFError, OSError):
                os._exit(0)  # the page is gone
            with arrived:
                queue.append(asked)
                arrived.notify()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        with arrived:
            while not queue:
                arrived.wait()
            name, arguments = queue.pop(0)
        pipe.send(_answer(getattr(bench, f"do_{name}"), arguments))
        bench.begun = time.process_time()


def _limited() -> None:
    """Limits of the operating system, where it has them; one thread for small work."""
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


def _answer(do: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return ("done", do(*arguments))
    except Refused as refusal:
        near = {} if refusal.nearest_error is None else {"error": rounded_up(refusal.nearest_error)}
        return ("refused", refusal.summary, near or dict(refusal.remedy or {}))
    except MaxaffineError as mistake:
        return ("refused", str(mistake), {})
    except MemoryError:
        return ("failed", "this needs more memory than a layer may take here; ask for a larger error.")
    except Exception as fault:  # shown as what it is; the traceback goes to the terminal
        import traceback

        traceback.print_exc()
        return ("failed", f"a fault of maxaffine: {type(fault).__name__}: {fault}")


class Bench:
    """What the process holds: the layer as compiled, and the layer as turned."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.compiled: Any = None
        self.layer: Any = None
        self.near: Any = None  # where the error of the layer is at home, if that is a small part of the box
        self.begun = 0.0  # processor seconds of this process before the request; its own start counts to the first

    def _progress(self, stage: str, done: int, total: int) -> None:
        self.pipe.send(("progress", stage, int(done), int(total)))

    def _hold(self, layer: Any) -> None:
        from maxaffine.studio import views

        self.layer, self.near = layer, views.close(layer)

    def _run(self) -> Any:
        from maxaffine.run import Run

        return Run(max_bytes=LAYER, max_seconds=SECONDS, progress=self._progress)

    def do_compile(self, ask: Ask) -> dict[str, Any]:
        """The layer of an expression or a gallery entry."""
        from maxaffine.compiler import compile as compile_layer
        from maxaffine.studio import views

        target, box, asked = ask.request()
        self._hold(compile_layer(target, box, **asked, run=self._run()))
        self.compiled = self.layer
        return views.summary(self.layer) | {"took": time.process_time() - self.begun}

    def do_table(self, name: str, contents: bytes, error: float) -> dict[str, Any]:
        """The layer of a table or of samples, from the bytes of a file."""
        from maxaffine.compiler import compile as compile_layer
        from maxaffine.studio import views
        from maxaffine.target.table_files import read_contents

        with tempfile.TemporaryDirectory(prefix="maxaffine-studio-") as folder:
            path = Path(folder) / f"table{Path(name).suffix.lower()}"  # nothing of the name but its kind
            path.write_bytes(contents)
            read = read_contents(str(path), None, None, LAYER, self._progress)
            self._hold(compile_layer(read.target("refuse", "table"), error=error, run=self._run()))
        self.compiled = self.layer
        return views.summary(self.layer) | {"took": time.process_time() - self.begun}

    def do_sharpen(self, factor: float) -> dict[str, Any]:
        """The compiled layer at another temperature."""
        from maxaffine.studio import views

        self._hold(self.compiled if factor == 1.0 else self.compiled.with_sharpness(factor))
        return views.summary(self.layer, "" if factor == 1.0 else "r") | {"asked": self.compiled.error}

    def do_keys(self, ask: Ask, count: int) -> dict[str, Any]:
        """The paper's lookup on a grid of so many cells per variable, whatever its error is."""
        import numpy as np

        from maxaffine.compiler import compile as compile_layer
        from maxaffine.core.errors import BadInput
        from maxaffine.layer.maxaffine import MaxAffine
        from maxaffine.studio import views

        box = self.compiled.box
        if count**box.dimension > MOST_KEYS:
            many = f"{count} cells per variable are {count**box.dimension:,} keys here"
            raise BadInput(f"{many}, and {MOST_KEYS:,} are shown at most.")
        target, _, asked = ask.request()
        spread = float(np.ptp(self.compiled.target.values(box.sample(1000, np.random.default_rng(0)))))
        options = {"norm": asked["norm"], "dtype": asked["dtype"], "error": 10.0 * spread + 1e-6}
        self._hold(compile_layer(target, box, **options, keys=MaxAffine.grid(box, count), run=self._run()))
        return views.summary(self.layer, "keys")

    def do_compare(self, ask: Ask, axes: tuple[int, ...], point: list[float]) -> dict[str, Any]:
        """Another layer of the same request, seen through the same point; the one that is shown is in another process."""
        from maxaffine.compiler import compile as compile_layer
        from maxaffine.studio import views

        target, box, asked = ask.request()
        other = compile_layer(target, box, **asked, run=self._run())
        return {"summary": views.summary(other), "view": views.view(other, axes, point, views.close(other))}

    def do_look(self, axes: tuple[int, ...], point: list[float]) -> dict[str, Any]:
        """Curves or maps through a point, and the weights there."""
        from maxaffine.studio import views

        found = {"view": views.view(self.layer, axes, point, self.near)}
        try:
            found["attention"] = views.attend(self.layer, point)
        except MaxaffineError as why:
            found["attention"] = {"why": str(why)}
        return found

    def do_matrices(self) -> dict[str, Any]:
        """The literal matrices."""
        from maxaffine.studio import views

        return views.matrices(self.layer)

    def do_move(self, shares: dict[str, float]) -> dict[str, Any]:
        """The literal layer with noise on its matrices."""
        from maxaffine.studio import views

        return views.moved(self.layer, shares)

    def do_frontier(self, ask: Ask) -> list[dict[str, Any]]:
        """Tokens against error of every head."""
        from maxaffine.frontier import plan

        target, box, asked = ask.request()
        rows = plan(target, box, errors=(1e-1, 1e-2, 1e-3, 1e-4, 1e-6), norm=asked["norm"], dtype=asked["dtype"], run=self._run())
        return [{"method": row["method"], "error": row["error"], "tokens": int(row["tokens"])} for row in rows]

    def do_export(self, kind: str) -> tuple[str, bytes]:
        """The layer as a file: its name and its bytes."""
        with tempfile.TemporaryDirectory(prefix="maxaffine-studio-") as folder:
            if kind == "safetensors":
                path = Path(folder) / "layer.safetensors"
                self.layer.save(path)
            elif kind == "onnx":
                path = Path(folder) / "layer.onnx"
                self.layer.to_onnx(path)
            else:
                path = Path(folder) / f"layer.{kind}"
                self.layer.draw(path)
            return path.name, path.read_bytes()
