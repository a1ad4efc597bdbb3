"""What test_head_steps.py asks of heads: every step beside the hot chain, and penalties over a history."""

import torch
from head_cases import Case

STEPS = {
    "typical_p": lambda rng, size: {"typical_p": float(rng.choice([0.2, 0.7, 0.95]))},
    "epsilon_cutoff": lambda rng, size: {"epsilon_cutoff": float(10 ** rng.uniform(-4, 0))},
    "eta_cutoff": lambda rng, size: {"eta_cutoff": float(10 ** rng.uniform(-4, 0))},
    "top_n_sigma": lambda rng, size: {"top_n_sigma": float(rng.uniform(0.1, 3))},
    "top_h": lambda rng, size: {"top_h": float(rng.uniform(0.05, 1))},
    "top_a": lambda rng, size: {"top_a": float(10 ** rng.uniform(-3, 0))},
    "xtc": lambda rng, size: {
        "xtc_probability": float(rng.choice([0.5, 1.0])),
        "xtc_threshold": float(rng.choice([0.0, 1e-18, 0.02, 0.1, 0.4])),
    },
    "dynatemp": lambda rng, size: {"dynatemp_range": float(rng.uniform(0.1, 2))},
    "smoothing": lambda rng, size: {"smoothing_factor": float(rng.uniform(0.05, 2)), "smoothing_curve": 1.5},
    "mirostat 1": lambda rng, size: {"mirostat": 1, "mirostat_mu": float(rng.uniform(-1, 9))},
    "mirostat 2": lambda rng, size: {"mirostat": 2, "mirostat_mu": float(rng.uniform(-1, 9))},
    "adaptive_p": lambda rng, size: {"adaptive_target": float(rng.uniform(0, 1))},
}
"""Beside CUTS: the other steps, each of which is also tried after a cut that leaves it no tail."""


def penalised(rng, case: Case) -> None:
    """Ids of a history, sent and unsent, and what is done to them: lowered, raised, or forbidden."""
    ids = rng.choice(min(len(case.row), 12), (2, 1, 6)) if rng.random() < 0.5 else rng.choice(len(case.row), (2, 1, 6))
    case.history = {"prompt_ids": torch.from_numpy(ids[0]), "output_ids": torch.from_numpy(ids[1])}
    for name, values in PENALTIES.items():
        if rng.random() < 0.4:
            case.params[name] = values[rng.integers(len(values))]


PENALTIES = {
    "repetition_penalty": (1.3, 0.7, 3.0),
    "presence_penalty": (0.5, -0.5),
    "frequency_penalty": (0.25, -0.25),
    "dry_multiplier": (0.8,),
    "no_repeat_ngram_size": (1, 2),
    "logit_bias": ({0: 0.5}, {0: -1.0}),
}
