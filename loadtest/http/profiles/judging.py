"""What is asked about rows and drafts, rather than tokens drawn from them."""

from collections.abc import Iterator

import numpy as np
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.sampling import Rows

from logitd.client.analyze_call import analyze_call
from logitd.client.call import sample_call
from logitd.client.score_call import score_call
from logitd.client.verify_call import verify_call

_HISTORY = np.arange(64)[None]


def kinds(wire: Wire, rows: Rows) -> Iterator[Kind]:
    """Yield them all.

    Args:
        wire: writes the requests.
        rows: [N, V] float32 logits, at least two.
    """
    row, vocab_size = rows[:1], rows.shape[1]
    draft = np.array([[int(row.argmax())]])
    penalised = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "temperature": 0.8, "top_p": 0.9, "seed": 1}
    yield single(
        "penalised",
        [wire.call(sample_call(row, keywords=penalised, beside={"output_ids": _HISTORY % vocab_size}))],
    )
    yield single(
        "verify", [wire.call(verify_call(rows[None, :2], draft, params={"temperature": 0.8, "top_k": 50, "seed": 1}))]
    )
    yield single("score", [wire.call(score_call(rows[:2], rows[:2].argmax(1), gradient=False))])
    analysed = analyze_call(row, [0.5, 1.0, 2.0], entropy=None, mass=0.9, params=None)
    yield single("analyze", [wire.call(analysed)])
