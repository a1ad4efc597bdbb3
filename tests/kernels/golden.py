"""What the worked numbers share: rows small enough to check by hand, on both backends."""

import pytest
import torch
from rows_of import BACKENDS, INF, threads

import logitd_kernels as K

both = pytest.mark.parametrize("backend", BACKENDS)

FOUR = (0.1, 0.2, 0.3, 0.4)
MASKED = -INF


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threads(1):
        yield


def rows(*values, dtype=torch.float64):
    return K.DenseRows(torch.tensor(values, dtype=dtype))
