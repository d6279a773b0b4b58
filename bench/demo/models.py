"""The models of the demo. Without torch it goes on with k-means alone."""

import importlib.util

from kmeans import KMeans
from model import Model


def _models() -> list[Model]:
    if importlib.util.find_spec("torch") is None:
        return [KMeans()]
    from mixture import GaussianMixture

    return [KMeans(), GaussianMixture()]


MODELS: dict[str, Model] = {model.name: model for model in _models()}
