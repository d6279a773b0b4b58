"""k-means in NumPy: one of the two models that the demo trains and kills."""

import numpy as np
from numpy.typing import NDArray

import digits
from model import State


class KMeans:
    """Lloyd's iteration in NumPy with restarts; the best clustering so far is part of the state."""

    name = "k-means"
    steps = 120
    curve_title = "inertia of the current restart"
    pictured = "best_centers"
    caption = "Centers of the best clustering"
    clusters = 10
    seed = 20

    def start(self) -> State:
        """Return the state before the first iteration. The history is one number a step."""
        pixels = digits.images()
        return {
            "centers": self._first_centers(restart=0),
            "labels": np.full(len(pixels), -1, dtype=np.int32),
            "restart": np.zeros((), dtype=np.int64),
            "best_centers": np.zeros((self.clusters, pixels.shape[1])),
            "best_inertia": np.full((), np.inf),
            "history": np.full(self.steps, np.nan),
        }

    def advance(self, state: State, step: int) -> State:
        """Assign, then move the centers; where no label changed, begin the next restart."""
        pixels = digits.images()
        centers = np.asarray(state["centers"])
        labels, inertia = self._assign(pixels, centers)
        new = {name: np.array(value) for name, value in state.items()}
        new["history"][step] = inertia
        if inertia < new["best_inertia"]:
            new["best_inertia"][()] = inertia
            new["best_centers"][:] = centers
        if np.array_equal(labels, state["labels"]):
            new["restart"] += 1
            new["labels"][:] = -1
            new["centers"][:] = self._first_centers(int(new["restart"]))
        else:
            new["labels"][:] = labels
            new["centers"][:] = self._move(pixels, labels, centers)
        return new

    def _first_centers(self, restart: int) -> NDArray[np.float64]:
        pixels = digits.images()
        random = np.random.default_rng([self.seed, restart])
        chosen = random.choice(len(pixels), self.clusters, replace=False)
        return np.take(pixels, chosen, axis=0)

    def _assign(
        self, pixels: NDArray[np.float64], centers: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], float]:
        distances = (
            (pixels**2).sum(axis=1)[:, None] - 2.0 * pixels @ centers.T + (centers**2).sum(axis=1)
        )
        labels = distances.argmin(axis=1).astype(np.int32)
        return labels, float(distances.min(axis=1).sum())

    def _move(
        self,
        pixels: NDArray[np.float64],
        labels: NDArray[np.int32],
        centers: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        moved = centers.copy()
        for cluster in range(self.clusters):
            members = pixels[labels == cluster]
            if len(members):  # an empty cluster stays where it was
                moved[cluster] = members.mean(axis=0)
        return moved
