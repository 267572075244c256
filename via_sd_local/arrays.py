"""The array type that modules exchange."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]  # logits [rows, n_vocab] or one row, hidden states [n, n_embd]
