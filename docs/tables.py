"""Write the pages of docs/ that derive from code: the sampling parameters and the settings. `make docs` runs it."""

import json
from pathlib import Path

from pydantic.fields import FieldInfo

from logitd.settings import Settings
from logitd_kernels import TRANSFORMS
from logitd_kernels.sampling.registry import DRAW_PARAMETERS
from logitd_kernels.sampling.transform import Transform

DOCS = Path(__file__).parent
GENERATED = "<!-- Written by `make docs` from the code; edit there. -->\n"


def sampling_page() -> str:
    """Return docs/sampling-parameters.md: every transform in the order in which it acts, then the draw's parameters."""
    lines = [
        "# Sampling parameters",
        GENERATED,
        "Transforms act in this order (dialect `vllm`). Ties everywhere follow the total order: logit descending, then",
        "token id ascending. x are the logits, M their maximum, T the temperature.",
        "",
    ]
    for transform in TRANSFORMS:
        lines += _transform_section(transform)
    lines += ["## The draw", "", "| parameter | values | default | what |", "|---|---|---|---|"]
    lines += [f"| `{p.name}` | {p.bounds} | `{_shown(p.neutral)}` | {p.doc} |" for p in DRAW_PARAMETERS]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Return docs/settings.md: every setting with its variable, flag and default."""
    lines = [
        "# Settings",
        GENERATED,
        "Every setting is an environment variable and a flag of `logitd serve`; the flag wins.",
        "",
        "| variable | flag | default | what |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        lines.append(f"| `LOGITD_{name.upper()}` | `{flag}` | {_default(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    return {DOCS / "sampling-parameters.md": sampling_page(), DOCS / "settings.md": settings_page()}


def _transform_section(transform: Transform) -> list[str]:
    lines = [f"## {transform.name}", "", f"`{transform.formula}`", "", transform.boundary, ""]
    own = [transform.parameter] if transform.parameter else []
    parameters = [*own, *transform.options]
    if parameters:
        lines += ["| parameter | values | neutral | what |", "|---|---|---|---|"]
        lines += [f"| `{p.name}` | {p.bounds} | `{_shown(p.neutral)}` | {p.doc} |" for p in parameters]
    else:
        lines.append(f"Sent as the tensor `{transform.name}`.")
    return [*lines, "", f"Source: {transform.source}.", ""]


def _default(field: FieldInfo) -> str:
    return "the usable cores" if field.default_factory else f"`{field.default}`"


def _shown(value: object) -> str:
    return json.dumps(value).removesuffix(".0")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
