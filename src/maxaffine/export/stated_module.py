"""A torch.nn.Module with a statement: what is proved of the numbers and the dtype that it was made with.

Converted, overwritten or trained, the module withdraws it and says why.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from maxaffine.proofs.statement import Statement


class Stated(nn.Module):
    """What is proved of a module, as long as nobody touches its numbers; the buffer `low` says on which device they are."""

    low: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._statement: Statement | None = None
        self._mark: tuple[tuple[int, int], ...] = ()  # of the numbers that the statement is about
        self.register_load_state_dict_post_hook(_loaded)
        self.exact: tuple[str, ...] = ()  # buffers that stay float64

    @property
    def statement(self) -> Statement | None:
        """What is proved of this module, None where nothing was said; withdrawn once its numbers have been written to."""
        if self._statement is not None and self._statement.covered and self._mark != self._marks():
            self._statement = self._statement.withdrawn("the module's numbers were changed after it was made")
        return self._statement

    @statement.setter
    def statement(self, statement: Statement | None) -> None:
        self._statement, self._mark = statement, self._marks()

    def withdraw(self, why: str) -> None:
        """Say of a proved module that its bound no longer holds, and why; the first reason stays."""
        if self.statement is not None and self.statement.covered:
            self.statement = self.statement.withdrawn(why)

    def _numbers(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.named_parameters()
        yield from self.named_buffers()

    def _marks(self) -> tuple[tuple[int, int], ...]:
        """Where every tensor is and how often it was written to: equal as long as nobody touched them."""
        return tuple((tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version) for _, tensor in self._numbers())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        said, before = self.statement, self._dtypes()
        kept = {name: getattr(self, name) for name in self.exact}
        super()._apply(fn, recurse)
        for name, tensor in kept.items():  # moved to where the others went, but not rounded
            setattr(self, name, tensor.to(device=getattr(self, name).device))
        place = self.low.device.type
        self.statement = said if said is None or kept["low"].device.type == place else replace(said, device=place)
        after = self._dtypes()
        for name, dtype in before.items():
            if after[name] != dtype:
                words = [str(one).removeprefix("torch.") for one in (dtype, after[name])]
                self.withdraw(f"the module was converted from {words[0]} to {words[1]} after it was made")
        return self

    def _dtypes(self) -> dict[str, torch.dtype]:
        """The dtypes of all numbers that may be rounded."""
        return {name: one.dtype for name, one in self._numbers() if name not in self.exact and one.is_floating_point()}

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        said = self.statement
        for name, tensor in self._numbers():
            other = state_dict.get(prefix + name)
            if isinstance(other, Tensor) and not _same(tensor, other):
                self.withdraw(f"the module was given other numbers (`{name}`) after it was made")
                said = self.statement
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._statement = said

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_statement": self.statement}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._mark = self._marks()


def _loaded(module: Stated, keys: Any) -> None:
    """A state was loaded, children included: what `_load_from_state_dict` left of the statement is about these numbers."""
    module.statement = module._statement


def _same(ours: Tensor, other: Tensor) -> bool:
    """Whether loading a tensor changes nothing: the same numbers in the same dtype."""
    return ours.dtype == other.dtype and ours.shape == other.shape and torch.equal(ours.detach(), other.to(ours.device))
