"""Generate text with a real language model and a running logitd: model logits -> /v1/sample -> token -> model.

    pip install 'logitd[demo]'
    python examples/generate.py --url http://127.0.0.1:8000 --words 16 --seed 1

Every temperature draws from its own stream of the seed, at the word's position as the step, so a run can be repeated
word for word and any one draw can be replayed alone. Only the milliseconds differ.
"""

import argparse
import sys
import textwrap
import time
from dataclasses import dataclass, field
from statistics import fmean

from tqdm import tqdm
from trigram import TrigramModel

from logitd import Client, LogitdError

TEMPERATURES = (0.0, 0.7, 1.0, 1.3)
TOP_P = 0.9
TEXT_WIDTH = 96


@dataclass
class Generation:
    """One text, oldest word first, and what each of its generated words measured.

    Attributes:
        words: the prompt and the words generated after it.
        entropies: nats, of the tempered distribution before top_p cuts it.
        kept: how many words top_p left to draw from.
        model_ms, client_ms, service_ms: where the time of the word went; client is the rest of the call, transport
            included.
    """

    words: list[str]
    entropies: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    model_ms: list[float] = field(default_factory=list)
    client_ms: list[float] = field(default_factory=list)
    service_ms: list[float] = field(default_factory=list)


def generate_word(
    client: Client, model: TrigramModel, text: Generation, *, temperature: float, seed: int, stream: int, step: int
) -> None:
    """Let the model score the next word and the service draw it; append it and its measurements to the text."""
    started = time.perf_counter()
    logits = model.logits(text.words)
    scored = time.perf_counter()
    result = client.sample(logits[None], temperature=temperature, top_p=TOP_P, seed=seed, stream=stream, step=step)
    sampled = time.perf_counter()

    row = result.rows[0]
    service_s = sum(result.seconds.values())
    text.words.append(model.words[row.token])
    text.entropies.append(row.entropy)
    text.kept.append(row.kept)
    text.model_ms.append(1e3 * (scored - started))
    text.client_ms.append(1e3 * (sampled - scored - service_s))
    text.service_ms.append(1e3 * service_s)


def report(text: Generation, temperature: float) -> str:
    """Return the text, wrapped, above the means over its generated words."""
    body = textwrap.fill(" ".join(text.words), TEXT_WIDTH, initial_indent="  ", subsequent_indent="  ")
    return (
        f"temperature {temperature:g}\n{body}\n"
        f"  entropy {fmean(text.entropies):.2f} nats, {fmean(text.kept):,.1f} words kept; per word: "
        f"model {fmean(text.model_ms):.1f}, client {fmean(text.client_ms):.1f}, "
        f"service {fmean(text.service_ms):.1f} ms\n"
    )


def generate_all(client: Client, options: argparse.Namespace) -> None:
    """Generate and print one text for each temperature, with the progress on stderr."""
    model = TrigramModel()
    with tqdm(
        total=len(TEMPERATURES) * options.words, unit="word", leave=False, ncols=TEXT_WIDTH, mininterval=0.5
    ) as progress:
        for stream, temperature in enumerate(TEMPERATURES):
            progress.set_description(f"temperature {temperature:g}")
            text = Generation(options.prompt.lower().split())
            for step in range(options.words):
                generate_word(client, model, text, temperature=temperature, seed=options.seed, stream=stream, step=step)
                progress.update()
            progress.write(report(text, temperature))


def positive_int(value: str) -> int:
    """Parse a count of at least one, for argparse."""
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Generate text at several temperatures through a running logitd.")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where logitd listens (default: %(default)s)")
    parser.add_argument("--words", type=positive_int, default=16, help="words per text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same text (default: %(default)s)")
    parser.add_argument("--prompt", default="in new", help='words the texts start with (default: "%(default)s")')
    return parser.parse_args()


def main() -> int:
    """Run the pipeline; 1 and one line on stderr when the service cannot be reached or refuses."""
    options = parse_options()
    try:
        with Client(options.url) as client:
            generate_all(client, options)
    except LogitdError as error:
        print(f"logitd at {options.url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
