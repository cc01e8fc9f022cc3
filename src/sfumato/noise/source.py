"""Where the curator's noise comes from: this package, or a stand-in by which an audit watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.exact import ExactLike
    from sfumato.noise.law import Kind


class NoiseSource(Protocol):
    """What answers are drawn with: `add_noise`, `add_sparse_noise` and `exponential_choice`, or the like.

    A curator that is given none, as every command and `sfumato.open` do, draws from this package. Only
    audits give one, on tables that they made up themselves.
    """

    def add_noise(self, values: NDArray[np.int64], *, kind: Kind, scale: ExactLike) -> NDArray[np.int64]:
        """`values` with noise."""

    def add_sparse_noise(
        self,
        cells: NDArray[np.int64],
        values: NDArray[np.int64],
        *,
        size: int,
        scale: ExactLike,
        threshold: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells whose noisy value reaches `threshold`, and these values."""

    def exponential_choice(self, scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
        """An index for every row of `scores`."""
