"""From a decoded message to checked targets to score."""

from dataclasses import dataclass, replace

import torch

from logitd.api.requests import SampleJob, named, only, sample_job
from logitd.api.schemas import check
from logitd.api.score_schemas import ScoreFields
from logitd.api.tensors import to_torch
from logitd.errors import Invalid
from logitd.score_work import ScoreWork
from logitd.settings import Settings
from logitd.wire.known import SCORE
from logitd.wire.message import Message
from logitd_kernels import DenseRows
from logitd_kernels.score import check_targets

_SHAPES = {"logits": "[rows, vocab]", "targets": "[rows]"}


@dataclass(frozen=True)
class ScoreJob:
    """A checked request to score: a request to sample, with targets in place of the draw."""

    rows: DenseRows
    targets: torch.Tensor
    sample: SampleJob
    gradient: bool

    @property
    def numbers(self) -> int:
        """How many numbers the answer holds beside a few for each row."""
        return self.rows.logits.numel() if self.gradient else 0

    @property
    def work(self) -> ScoreWork:
        """What the engine is to compute."""
        return ScoreWork(self.rows, self.targets, self.sample.values, self.sample.order, self.gradient)


def score_job(message: Message, settings: Settings) -> ScoreJob:
    """Check a request to score.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(ScoreFields, message.fields, message.path)
    only(message, [name for name, _ in SCORE.readers.values()])
    for name, shape in _SHAPES.items():
        if name not in message.tensors:
            raise Invalid.at(message.path(name), f"is required: {shape}")
    sample = sample_job(_of_the_draw(message), settings)
    rows, targets = sample.rows, to_torch(message.tensors["targets"])
    assert isinstance(rows, DenseRows)
    named(message, lambda: check_targets(targets, rows))
    return ScoreJob(rows, targets, sample, fields.gradient)


def _of_the_draw(message: Message) -> Message:
    """Return what a request to sample would say of the same rows."""
    return replace(
        message,
        fields={name: value for name, value in message.fields.items() if name != "gradient"},
        tensors={name: tensor for name, tensor in message.tensors.items() if name != "targets"},
    )
