"""The context of a stage generator: device, seeded generators, stored structures, messages.

Knows nothing about algorithms or batches.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from xclearn.extras import is_installed
from xclearn.inference.placed import device_named
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.ranks import ALONE, here
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.sharding import handed_out

if TYPE_CHECKING:
    import torch

Callback = Callable[[Mapping[str, Any]], None]


@final
class Run:
    """One call of `fit`."""

    def __init__(
        self, device: torch.device, seed: int, checkpoint: Checkpoint, callback: Callback, *, part: str = ""
    ) -> None:
        self.device = device
        self.seed = seed
        self.checkpoint = checkpoint
        self._callback = callback
        self._part = part  # prefix of all names, for a part of a larger run
        self.ranks = here()
        self.noted: dict[str, float | int | str] = {}  # for the model card

    def part(self, name: str) -> Run:
        """The same run for a part, whose random draws and stored structures have their own names."""
        return Run(self.device, self.seed, self.checkpoint, self._callback, part=f"{self._part}{name}-")

    def alone(self) -> Run:
        """The same run for what the first process does when the others are done."""
        self.checkpoint.leave_others()
        run = Run(self.device, self.seed, self.checkpoint, self._callback, part=self._part)
        run.ranks, run.noted = ALONE, self.noted
        return run

    @property
    def answers_on(self) -> str:
        """The device on which trained members predict held-out documents: the training GPU, if there is room."""
        return "auto" if self.device.type == "cuda" else "cpu"

    @property
    def threads(self) -> int | None:
        """The number of torch's threads on a CPU, as it affects the last bits of results."""
        if self.device.type != "cpu" or self.ranks.count > 1 or not is_installed("torch"):
            return None
        import torch

        return torch.get_num_threads()

    def log(self, event: str, **facts: Any) -> None:
        """Call the callback; the library itself prints nothing."""
        if self.ranks.is_first:
            self._callback({"event": event, **facts})

    def rows(self, n_labels: int) -> LabelRows:
        """The label rows that this process holds."""
        return LabelRows.of(n_labels, self.ranks)

    def note(self, **facts: float | int | str) -> None:
        """Record a fact for the model card."""
        self.noted |= facts
        self.log("note", **facts)

    def seed_of(self, *names: str | int) -> int:
        """A seed that depends only on the run's seed and these names, not on earlier draws."""
        text = self._part + "/".join(map(str, (self.seed, *names)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")

    def generator(self, *names: str | int, device: torch.device | None = None) -> torch.Generator:
        """A torch generator by name, on the CPU unless a device is given."""
        import torch

        return torch.Generator(device or "cpu").manual_seed(self.seed_of(*names))

    @contextlib.contextmanager
    def seeded(self, *names: str | int) -> Iterator[None]:
        """Seed torch's global generators by name, for modules that use them; the caller's state is restored."""
        import torch

        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.seed_of(*names))
            yield

    @contextlib.contextmanager
    def fast_products(self) -> Iterator[None]:
        """Allow TF32 for float32 products on a GPU; the caller's setting is restored."""
        if not is_installed("torch"):
            yield
            return
        import torch

        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.device.type == "cuda" else before)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def keep(self, name: str, compute: Callable[[], np.ndarray], *, inputs: str = "") -> np.ndarray:
        """A structure computed between stages, stored in the checkpoint under its name and a hash of its inputs."""
        return self.keep_all(name, lambda: {"value": compute()}, inputs=inputs)["value"]

    def keep_all(
        self, name: str, compute: Callable[[], dict[str, np.ndarray]], *, inputs: str = ""
    ) -> dict[str, np.ndarray]:
        """Like `keep`, for several arrays."""
        key = f"keep-{self._part}{name}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
        found = self.checkpoint.load(key)
        if found is not None:
            return found[0]
        values = compute()
        self.checkpoint.save(key, values, {})
        kept = handed_out(
            self.ranks, lambda: (values, {}), {}
        )  # on GPUs, results of processes may differ in the last bits
        assert kept is not None
        return kept[0]


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the GPU if there is one."""
    if name in ("auto", "cpu") and not is_installed("torch"):
        return cast("torch.device", SimpleNamespace(type="cpu"))  # linear models need only its type
    if name == "auto":
        import torch

        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return device_named(name)
