"""Budget: tokens, bytes and flops of a plan, known before anything is allocated."""

import os
from dataclasses import dataclass
from pathlib import Path

from maxaffine.core.errors import Refused, TooMany

EXPONENTIAL = 24  # flops that forming a logit and its exponential are worth
SHARE = 0.5  # of the free memory that a layer and its making may take


@dataclass(frozen=True)
class Cost:
    """What a layer takes: key tokens of the literal layer, bytes stored, bytes while it is made, flops per query."""

    tokens: int
    bytes: int
    peak_bytes: int
    flops: int

    def to_json(self) -> dict[str, int]:
        """Plain numbers."""
        return {"tokens": self.tokens, "bytes": self.bytes, "peak_bytes": self.peak_bytes, "flops_per_query": self.flops}


def lookup_cost(cells: int, axes: tuple[int, ...], dimension: int, outputs: int, n_out: int, itemsize: int) -> Cost:
    """Cost of a lookup with that many cells; `axes` are the keys per coordinate, or (cells,) for listed keys."""
    keys = sum(axes) * 2 if len(axes) > 1 or dimension == 1 else cells * (dimension + 1)
    stored = itemsize * (cells * outputs + keys)
    flops = 2 * outputs * (cells + cells // max(axes)) + EXPONENTIAL * sum(axes)
    return Cost(cells * n_out, stored, stored + 8 * 3 * cells * outputs, flops)


def free_memory() -> int:
    """Bytes that can be allocated now: the system's available memory, or the control group's where that is less."""
    free = [_meminfo(), _control_group()]
    known = [amount for amount in free if amount is not None]
    return min(known) if known else 4 << 30


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _control_group() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def count_text(count: int) -> str:
    """A number of tokens as a person reads it: 1,234, or 1.2e132 where there are more than a quadrillion."""
    if count < 10**15:
        return f"{count:,}"
    digits = str(count)
    lead = (int(digits[:3]) + 5) // 10  # two digits, rounded
    exponent = len(digits) - 1 + (lead == 100)
    lead = 10 if lead == 100 else lead
    return f"{lead // 10}.{lead % 10}e{exponent}"


def size(amount: float) -> str:
    """Bytes as a person reads them."""
    if amount >= 2.0**1000:
        return f"{count_text(int(amount))} B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} EiB"


def allowed(max_bytes: int | None) -> int:
    """The bytes that a layer and its making may take: `max_bytes`, or half of the memory that is free."""
    return int(free_memory() * SHARE) if max_bytes is None else int(max_bytes)


def afford(cost: Cost, max_bytes: int | None, what: str) -> None:
    """Refuse a cost beyond `max_bytes`, or beyond half of the memory that is free."""
    limit = allowed(max_bytes)
    if cost.peak_bytes > limit:
        rule = f"`max_bytes` allows {size(limit)}" if max_bytes is not None else f"{size(limit)} may be used here"
        rounded = f"{float(cost.tokens):.3g}" if cost.tokens < 10**300 else count_text(cost.tokens)
        tokens = f"{cost.tokens:,}" if cost.tokens < 10**7 else rounded
        refusal = TooMany(
            f"{what} needs {tokens} tokens, {size(cost.bytes)} to store and {size(cost.peak_bytes)} to make, and {rule}. "
            "Ask for a larger `error`, another `method`, or fewer variables."
        )
        refusal.tokens = cost.tokens
        raise refusal


def afford_bytes(needed: int, what: str, way_out: str) -> None:
    """Refuse what takes more than half of the memory that is free."""
    limit = allowed(None)
    if needed > limit:
        raise Refused(f"{what} take {size(needed)}, and {size(limit)} may be used here; {way_out}.")
