"""The handwritten digits that scikit-learn ships: 1797 images of 8 x 8 pixels, no download."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("the demo needs scikit-learn: pip install -r .ci/requirements.txt") from None

SIDE = 8


@cache
def images() -> NDArray[np.float64]:
    """Return all images as rows, float64[1797, 64], pixels from 0 to 1."""
    data = np.asarray(load_digits().data, dtype=np.float64)
    return np.ascontiguousarray(data / 16.0)
