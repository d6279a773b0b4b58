"""A Gaussian mixture in torch: the other model that the demo trains and kills."""

import math
from collections.abc import Mapping

import torch

import digits
from model import State

torch.set_num_threads(1)  # sums in one order, whoever runs them


class GaussianMixture:
    """Expectation-maximisation in torch (CPU, float64), with a full covariance per component."""

    name = "Gaussian mixture"
    steps = 45
    curve_title = "mean log-likelihood of an image"
    pictured = "means"
    caption = "Means of the components"
    components = 24
    seed = 21
    regularisation = 2e-2  # added to each variance: some pixels of the digits are always 0

    def start(self) -> State:
        """Return images chosen at random as means, and one shared diagonal covariance."""
        pixels = torch.from_numpy(digits.images())
        count = len(pixels)
        random = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(count, generator=random)[: self.components]
        variance = pixels.var(dim=0) + self.regularisation
        return {
            "weights": torch.full((self.components,), 1.0 / self.components, dtype=torch.float64),
            "means": pixels[chosen].clone(),
            "covariances": torch.diag(variance).repeat(self.components, 1, 1),
            "responsibilities": torch.zeros(count, self.components, dtype=torch.float64),
            "history": torch.full((self.steps,), math.nan, dtype=torch.float64),
        }

    def advance(self, state: State, step: int) -> State:
        """One EM iteration: responsibilities from the parameters, then parameters from them."""
        pixels = torch.from_numpy(digits.images())
        old = {name: torch.as_tensor(value) for name, value in state.items()}
        densities = self._log_densities(pixels, old)
        evidence = torch.logsumexp(densities, dim=1)
        shares = torch.exp(densities - evidence[:, None])
        history = old["history"].clone()
        history[step] = evidence.mean()
        return {**self._maximise(pixels, shares), "responsibilities": shares, "history": history}

    def _log_densities(
        self, pixels: torch.Tensor, state: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        # log w_k + log N(x | m_k, C_k), through the Cholesky factor of each C_k.
        columns = []
        for weight, mean, covariance in zip(
            state["weights"], state["means"], state["covariances"], strict=True
        ):
            factor = torch.linalg.cholesky(covariance)
            offsets = torch.linalg.solve_triangular(factor, (pixels - mean).T, upper=False)
            log_determinant = 2.0 * factor.diagonal().log().sum()
            constant = pixels.shape[1] * math.log(2.0 * math.pi)
            columns.append(
                weight.log() - 0.5 * (constant + log_determinant + (offsets**2).sum(dim=0))
            )
        return torch.stack(columns, dim=1)

    def _maximise(self, pixels: torch.Tensor, shares: torch.Tensor) -> dict[str, torch.Tensor]:
        totals = shares.sum(dim=0) + 1e-10
        means = (shares.T @ pixels) / totals[:, None]
        covariances = torch.empty(self.components, pixels.shape[1], pixels.shape[1]).double()
        for component in range(self.components):
            centred = pixels - means[component]
            weighted = centred * shares[:, component, None]
            covariances[component] = weighted.T @ centred / totals[component]
            covariances[component].diagonal().add_(self.regularisation)
        return {"weights": totals / totals.sum(), "means": means, "covariances": covariances}
