"""From a row as it was sent to one that can be ranked: guidance and edits applied, in their order."""

import time
from collections.abc import Container
from typing import Any

import torch

from logitd_kernels.backends import Backend
from logitd_kernels.edits import Edits
from logitd_kernels.errors import ParameterError
from logitd_kernels.hot import HOT
from logitd_kernels.rows import DenseRows, Rows, beside, is_alone
from logitd_kernels.sampling.chain import Kept, step_of
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.result import Step
from logitd_kernels.sampling.transform import Edit, Values
from logitd_kernels.select.ordered import OrderedRow


class Preparation:
    """Gives the rows of a batch as the chain takes them.

    Args:
        rows: of the batch.
        backend: by which they are ranked.
        order: in which transforms act.
    """

    def __init__(self, rows: Rows, backend: Backend, order: Order) -> None:
        self._rows = rows
        self._backend = backend
        self._order = order
        self._alone = is_alone(rows)
        # Of parameters that several rows share; `values` outlive them.
        self._shared: dict[int, Edits] = {}
        self._hot: dict[int, Edits] = {}

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._rows.vocab_size

    def known(self, index: int, values: Values) -> dict[str, Any]:
        """Return the values of a row, with what else is known of it."""
        return {**values, **beside(self._rows, index)}

    def edits(self, index: int, values: Values, own: Values) -> Edits:
        """Return what is done to single logits of a row.

        Args:
            index: of the row.
            values: its parameters.
            own: what `known` gives for them.
        Raises:
            ParameterError: a token id outside the vocabulary.
        """
        if not self._alone:
            return self._edited(index, own)
        if id(values) not in self._shared:
            self._shared[id(values)] = self._edited(index, values)
        return self._shared[id(values)]

    def hot_edits(self, index: int, values: Values) -> Edits:
        """Return those of the edits that the hot chain takes as such: none of them looks at the mask or the history."""
        if id(values) not in self._hot:
            self._hot[id(values)] = self._edited(index, values, HOT)
        return self._hot[id(values)]

    def untouched(self, index: int) -> OrderedRow:
        """Return a dense row as it was sent, at T = 1."""
        assert isinstance(self._rows, DenseRows)
        return self._backend.row(self._rows.row(index), 1.0)

    def row(self, index: int, values: Values, own: Values, trace: list[Step] | None = None) -> OrderedRow:
        """Return a dense row after guidance and edits, at T = 1.

        Args:
            index: of the row.
            values: its parameters.
            own: what `known` gives for them.
            trace: where to note what each step left.
        Raises:
            BadRow: the row, or the one that guides it, is bad, or nothing is left.
            ParameterError: a token id outside the vocabulary.
        """
        assert isinstance(self._rows, DenseRows)
        logits = self._rows.row(index)
        for mix in self._order.mixes:
            if mix.active(own):
                began = time.perf_counter()
                logits = mix.mix(logits, own)
                if trace is not None:
                    trace.append(self._step(mix.name, self._backend.row(logits, 1.0), began))
        edits = self.edits(index, values, own) if trace is None else self._traced(index, logits, own, trace)
        return self._backend.row(edits.apply(logits), 1.0)

    def _traced(self, index: int, logits: torch.Tensor, own: Values, trace: list[Step]) -> Edits:
        """Return the edits of a row of logits, each noted in the trace."""
        edits = Edits(self._rows.vocab_size)
        for transform in self._order.edits:
            if transform.active(own):
                began = time.perf_counter()
                self._apply(transform, edits, own, index)
                trace.append(self._step(transform.name, self._backend.row(edits.apply(logits.clone()), 1.0), began))
        return edits

    def _edited(self, index: int, values: Values, names: Container[str] | None = None) -> Edits:
        edits = Edits(self._rows.vocab_size)
        for transform in self._order.edits:
            if (names is None or transform.name in names) and transform.active(values):
                self._apply(transform, edits, values, index)
        return edits

    @staticmethod
    def _apply(transform: Edit, edits: Edits, values: Values, index: int) -> None:
        try:
            transform.edit(edits, values)
        except ParameterError as error:
            raise ParameterError(error.field, error.message, index) from None

    @staticmethod
    def _step(name: str, row: OrderedRow, began: float) -> Step:
        return step_of(name, Kept(row, row, row.stats.everything), time.perf_counter() - began)
