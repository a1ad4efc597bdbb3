"""What leaves a head form's answer open, in words: one place for the formulas and the compiled chain."""

MASS_OPEN = "the mass asked for may end outside the head"
DRAW_OPEN = "the draw may fall outside the head"
TOKEN_OPEN = "the drawn token depends on the tail"
KEPT_OPEN = "the kept set depends on the tail"
SHAPE_OPEN = "what is asked depends on the shape of the tail"
COUNT_OPEN = "what is asked depends on how many logits of the row are finite"
STATE_OPEN = "the state of the next step depends on the tail"


def first_open(asked: int, certain: int) -> str:
    """Say that more of the largest logits are kept than are certain."""
    return f"top {asked} is asked and {certain} are certain"


def head_open(asked: int, certain: int) -> str:
    """Say that more logits have to be seen than are certain."""
    return f"{asked} logits are needed and {certain} are certain"


def floor_open(floor: float) -> str:
    """Say that a cut at a floor may keep tokens that were not sent."""
    return f"tokens outside the head may reach the floor of {floor:.6g}"
