"""What a batch decides about a runtime: NumPy or compiled code, threads, order and chunks, and whether that may change a bit.

Which runtime runs a layer follows from the layer alone, because runtimes round differently and a query's value must not depend
on its company.  How it runs is chosen batch by batch, by the functions that the runtimes themselves ask, and changes no bit but
where sums go through a BLAS (`same_bits`): literal runtimes, factorised lookups, and groups of products whose tables are large.
"""

import math
from dataclasses import dataclass

from maxaffine.core.errors import BadInput
from maxaffine.runtime import parallel


@dataclass(frozen=True)
class Ways:
    """How batches of one layer run: `work` per query of the kernel, the least batch that is ordered, queries per chunk."""

    kernel: str | None = None
    work: int = 0
    ordered: float = math.inf
    mapped: bool = False
    chunk: int = 0  # 0: the runtime cuts batches itself
    same_bits: bool = True

    @property
    def compiled(self) -> int:
        """Queries from which on one batch is worth loading compiled code."""
        return math.ceil(parallel.ENOUGH / self.work)

    @property
    def shared(self) -> int:
        """Queries from which on two threads share a batch."""
        return max(math.ceil(2 * parallel.SHARE / self.work), parallel.BLOCK + 1)

    def in_general(self, threads: int | None = None) -> str:
        """Every batch, in words."""
        if self.kernel is None:
            told = ["NumPy", *self._chunks]
        else:
            most = parallel.thread_count(threads)
            fewer = "NumPy for fewer until they have cost what loading it takes"
            told = [f"compiled code from {self.compiled:,} queries on, {fewer}"]
            if most > 1:
                told.append(f"up to {most} threads from {self.shared:,} on")
            if self.ordered < math.inf:
                told.append(f"in the order of their cells from {int(self.ordered):,} on{self._why_ordered}")
        return "; ".join([*told, self._bits])

    def in_particular(self, count: int, threads: int | None = None) -> str:
        """One batch of `count` queries, in words."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise BadInput(f"`batch` (={count!r}) must be a whole number of at least 1.")
        if self.kernel is None:
            told = ["NumPy", *(self._chunks if count > self.chunk else [])]
        elif parallel.is_loaded(self.kernel) or count >= self.compiled:
            parts = parallel.shares(count, count * self.work, threads)
            told = ["compiled code", f"{parts} threads" if parts > 1 else "one thread"]
            if count >= self.ordered:
                told.append(f"in the order of their cells{self._why_ordered}")
        else:
            again = math.ceil(parallel.PATIENCE / (count * self.work * max(1, parallel.CALL // count)))
            told = [f"NumPy, and compiled code after about {again:,} such batches, when they have cost what loading it takes"]
        return f"{count:,} {'query' if count == 1 else 'queries'}: {', '.join(told)}; {self._bits}"

    @property
    def _why_ordered(self) -> str:
        return " (values are mapped from a file)" if self.mapped else " (values do not fit the caches)"

    @property
    def _chunks(self) -> list[str]:
        return [f"in chunks of {self.chunk:,} queries"] if self.chunk else []

    @property
    def _bits(self) -> str:
        return "the same bits in every batch" if self.same_bits else "batches differ by rounding alone, which the bound counts"
