"""How gradients become weights: AdamW, accumulation over mini-batches, clipping, a learning-rate schedule, exact resume.

One `PolicyOptimizer` for each distinct set of parameters: agents that share a policy share it. It knows nothing of losses or of
agents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter

from learners.interrupts import interruptible, shielded

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]
OptimizerFactory: TypeAlias = Callable[[list[Parameter], float], torch.optim.Optimizer]

SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine")


class PolicyOptimizer:
    """Steps one set of parameters.

    A mini-batch is any number of `backward` calls, one a micro-batch, whose losses sum to the mini-batch's; then `step`. An update
    takes the mean gradient of `gradient_accumulation_steps` mini-batches. `flush` makes one of fewer, divided by how many they are,
    where data end. Nothing is rounded away: until the division the gradients are plain sums.

    A loss or gradient that is not finite raises before any weight changes. The mini-batch is dropped with it; what earlier ones of
    the window gathered stays. `mini_batch` does the same for whatever else stops one.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.01,
        adam_betas: tuple[float, float] = (0.9, 0.999),
        adam_epsilon: float = 1e-8,
        max_grad_norm: float | None = None,
        lr_scheduler_type: Schedule = "constant",
        warmup_steps: int = 0,
        lr_decay_steps: int | None = None,
        gradient_accumulation_steps: int = 1,
        at_other_rates: Sequence[tuple[Iterable[Parameter], float]] = (),
        factory: OptimizerFactory | None = None,
    ) -> None:
        """An optimiser at its first update.

        Args:
            parameters: what to train, each once.
            learning_rate: at its highest.
            weight_decay: decoupled, of every parameter.
            adam_betas: decay of the first and second moments.
            adam_epsilon: added to the root of the second moment.
            max_grad_norm: a longer gradient is shortened to this 2-norm; None leaves it.
            lr_scheduler_type: see `schedule_factor`.
            warmup_steps: updates.
            lr_decay_steps: updates.
            gradient_accumulation_steps: mini-batches an update.
            at_other_rates: further parameters, each lot with the learning rate it has at its highest.
            factory: makes another optimiser than AdamW from parameters and one learning rate; the Adam options are its own affair.

        Raises:
            ValueError: nothing to train, a parameter given twice, a schedule without its end, or several rates for a `factory`.
        """
        groups = [(list(parameters), learning_rate), *((list(more), rate) for more, rate in at_other_rates)]
        self.parameters = [parameter for group, _ in groups for parameter in group]
        if not self.parameters:
            raise ValueError("there are no parameters to train")
        if len({id(parameter) for parameter in self.parameters}) < len(self.parameters):
            raise ValueError("a parameter is given twice; tied weights count once")
        self._rates = [rate for group, rate in groups if group]
        self._max_grad_norm = max_grad_norm
        self._schedule = (lr_scheduler_type, warmup_steps, lr_decay_steps)
        schedule_factor(0, *self._schedule)
        self._window = gradient_accumulation_steps
        self._has_moments = factory is None
        self._fused = all(parameter.device.type in ("cpu", "cuda") for parameter in self.parameters)
        if factory is None:
            self._optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                [{"params": group} for group, _ in groups if group],
                lr=learning_rate,
                betas=adam_betas,
                eps=adam_epsilon,
                weight_decay=weight_decay,
                fused=self._fused,
            )
        elif len(self._rates) > 1:
            raise ValueError(f"a factory makes an optimiser with one learning rate, got {self._rates}")
        else:
            self._optimizer = factory(self.parameters, learning_rate)
        self.updates = 0
        self._begin_window()

    @property
    def learning_rate(self) -> float:
        """What the next update uses, for the parameters without a rate of their own."""
        return self._rates[0] * schedule_factor(self.updates, *self._schedule)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a micro-batch's loss.

        Args:
            loss: scalar; the losses of a mini-batch sum to its own.

        Raises:
            FloatingPointError: the loss is NaN or infinite.
        """
        self._begin_mini_batch()
        try:
            value = float(loss.detach())
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss of update {self.updates + 1} is {value}; weights are unchanged")
            loss.backward()
        except BaseException:
            self.discard()
            raise

    def step(self) -> float | None:
        """End a mini-batch; 2-norm of the gradient, before clipping, if that made an update, else None.

        Raises:
            FloatingPointError: the gradient is NaN or infinite.
        """
        return step_together([self])[0]

    def flush(self) -> float | None:
        """Update with the mini-batches that are waiting; the gradient's norm, or None where there are none.

        Raises:
            FloatingPointError: the gradient is NaN or infinite.
            RuntimeError: a mini-batch was begun and not ended by `step`.
        """
        return flush_together([self])[0]

    def discard(self) -> None:
        """Forget the mini-batch that was begun and has not ended; what earlier ones of the window gathered stays."""
        if self._unfinished:
            self._set_gradients(self._before)
            self._before, self._unfinished = [], False

    def _begin_mini_batch(self) -> None:
        if not self._unfinished:
            # The first of a window finds nothing that would have to be kept.
            self._before = self._gradients_of_window() if self._mini_batches else []
            self._unfinished = True

    def _gradients_of_window(self) -> list[Tensor | None]:
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in self.parameters]

    def _set_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """These, or none."""
        for parameter, gradient in zip(self.parameters, gradients or [None] * len(self.parameters), strict=True):
            parameter.grad = gradient

    def _begin_window(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._mini_batches = 0
        self._unfinished = False
        self._before: list[Tensor | None] = []

    def _end_mini_batch(self) -> bool:
        """Whether the window is full."""
        self._mini_batches += 1
        self._before, self._unfinished = [], False
        return self._mini_batches >= self._window

    def _checked_norm(self) -> float:
        """2-norm of the sum of the window's gradients.

        Raises:
            FloatingPointError: it is not finite.
        """
        norm = gradient_norm(self._gradients())
        if math.isfinite(norm):
            return norm
        bad = [
            f"{position} (shape {tuple(parameter.shape)})"
            for position, parameter in enumerate(self.parameters)
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all()
        ]
        where = f"parameters {', '.join(bad)}" if bad else "its norm, which overflows"
        raise FloatingPointError(f"the gradient of update {self.updates + 1} is {norm}, from {where}; weights are unchanged")

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def _prepare(self, norm: float) -> float:
        """Make the window's mean gradient, clipped, and room for what a step keeps; the mean's norm.

        Args:
            norm: of the sum.
        """
        if self._mini_batches > 1:
            for gradient in self._gradients():
                gradient.div_(self._mini_batches)
            norm = gradient_norm(self._gradients())
        if self._max_grad_norm is not None and norm > self._max_grad_norm:
            for gradient in self._gradients():
                gradient.mul_(self._max_grad_norm / norm)
        return norm

    def _make_room(self, mini_batches: int) -> None:
        """Have AdamW's moments there if so many more mini-batches fill the window: in its step it would be too late for a team.

        They are what AdamW begins with itself: zeros.
        """
        if not self._has_moments or self._mini_batches + mini_batches < self._window:
            return
        for parameter in self.parameters:
            if parameter.grad is not None and not self._optimizer.state.get(parameter):
                moments = (torch.zeros_like(parameter, memory_format=torch.preserve_format) for _ in range(2))
                step = torch.zeros((), dtype=torch.float32, device=parameter.device if self._fused else "cpu")
                self._optimizer.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), (step, *moments), strict=True))

    def _update(self) -> None:
        # Set each time from this object's own options: a rate changed between two runs holds after a resume.
        factor = schedule_factor(self.updates, *self._schedule)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.step()
        self.updates += 1
        self._begin_window()

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs: moments, number of updates, gradients of a window that is not full.

        Nested dicts of tensors and JSON values. The tensors are the optimiser's own, not copies. Options are left out: they come
        from the configuration of the run that loads it.
        """
        state = self._optimizer.state
        return {
            "updates": self.updates,
            "mini_batches": self._mini_batches,
            "unfinished": self._unfinished,
            "shapes": [list(parameter.shape) for parameter in self.parameters],
            "moments": {str(i): dict(state[p]) for i, p in enumerate(self.parameters) if p in state},
            "gradients": {str(i): p.grad for i, p in enumerate(self.parameters) if p.grad is not None},
        }

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of other parameters; changes nothing.

        Raises:
            ValueError: their shapes differ.
        """
        shapes = [list(parameter.shape) for parameter in self.parameters]
        if state["shapes"] != shapes:
            raise ValueError(f"optimiser state of {_summary(state['shapes'])} cannot be loaded for {_summary(shapes)}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`'s state; tensors are copied, to the device and precision of the parameters.

        Raises:
            ValueError: it is of other parameters. Nothing has changed then.
        """
        self.check_state_dict(state)
        self._optimizer.load_state_dict(
            {
                "state": {int(i): {k: _copied(v) for k, v in moments.items()} for i, moments in state["moments"].items()},
                "param_groups": self._optimizer.state_dict()["param_groups"],
            }
        )
        self._begin_window()
        for position, gradient in state["gradients"].items():
            parameter = self.parameters[int(position)]
            parameter.grad = gradient.to(device=parameter.device, dtype=parameter.dtype, copy=True)
        self.updates = state["updates"]
        self._mini_batches = state["mini_batches"]
        self._unfinished = state["unfinished"]


@contextmanager
def mini_batch(optimizers: Iterable[PolicyOptimizer]) -> Iterator[None]:
    """Where the gradients of a mini-batch are gathered: if anything stops it, they are dropped, and what was there before stays.

    Ctrl-C is let through here. Threads that call `backward` must have ended when the block does, as those of `map_in_order` have.
    """
    try:
        with interruptible():
            yield
    except BaseException:
        for optimizer in optimizers:
            optimizer.discard()
        raise


def step_together(optimizers: Sequence[PolicyOptimizer]) -> list[float | None]:
    """End a mini-batch of several optimisers; for each the 2-norm of its gradient if that made an update, else None.

    All gradients are looked at, and all memory that the steps need is taken, before any weight changes.

    Raises:
        FloatingPointError: a gradient is NaN or infinite. All weights are unchanged and the mini-batch dropped then.
    """
    with shielded():
        with mini_batch(optimizers):
            for optimizer in optimizers:
                optimizer._begin_mini_batch()
            norms = [optimizer._checked_norm() for optimizer in optimizers]
            for optimizer in optimizers:
                optimizer._make_room(mini_batches=1)
        full = [optimizer._end_mini_batch() for optimizer in optimizers]
        return _commit(optimizers, [norm if now else None for norm, now in zip(norms, full, strict=True)])


def flush_together(optimizers: Sequence[PolicyOptimizer]) -> list[float | None]:
    """`PolicyOptimizer.flush` of several optimisers; all gradients are looked at before any weight changes.

    Raises:
        FloatingPointError: a gradient is NaN or infinite. Nothing is changed then.
        RuntimeError: a mini-batch was begun and not ended.
    """
    if any(optimizer._unfinished for optimizer in optimizers):
        raise RuntimeError("a mini-batch is open: call step() before flush()")
    sums = [optimizer._checked_norm() if optimizer._mini_batches else None for optimizer in optimizers]
    for optimizer in optimizers:
        optimizer._make_room(mini_batches=optimizer._window)
    with shielded():
        return _commit(optimizers, sums)


def _commit(optimizers: Sequence[PolicyOptimizer], sums: Sequence[float | None]) -> list[float | None]:
    """Update those that have a norm of their window's sum; the norms of the means."""
    due = [(optimizer, norm) for optimizer, norm in zip(optimizers, sums, strict=True) if norm is not None]
    norms = iter([optimizer._prepare(norm) for optimizer, norm in due])
    for optimizer, _ in due:
        optimizer._update()
    return [None if norm is None else next(norms) for norm in sums]


def schedule_factor(update: int, kind: Schedule, warmup_steps: int = 0, decay_steps: int | None = None) -> float:
    """Share of the highest learning rate that an update uses, in [0, 1].

    With u updates done and w of warm-up: (u + 1)/w while u < w, so that the first update moves already and update w has the full
    rate. Then, with d updates of decay, p = (u − w)/(d − w) up to 1: constant 1, linear 1 − p, cosine (1 + cos πp)/2.

    Args:
        update: u, updates done so far.
        kind: the schedule after the warm-up.
        warmup_steps: w.
        decay_steps: d, the update at which linear and cosine reach 0, warm-up included.

    Raises:
        ValueError: an unknown kind, or linear or cosine without `decay_steps` or with no more of them than of warm-up.
    """
    if kind not in SCHEDULES:
        raise ValueError(f"lr_scheduler_type must be one of {', '.join(SCHEDULES)}, got {kind!r}")
    if kind != "constant" and (decay_steps is None or decay_steps <= warmup_steps):
        raise ValueError(f"lr_scheduler_type {kind!r} needs lr_decay_steps above warmup_steps {warmup_steps}, got {decay_steps}")
    if update < warmup_steps:
        return (update + 1) / warmup_steps
    if kind == "constant" or decay_steps is None:
        return 1.0
    progress = min((update - warmup_steps) / (decay_steps - warmup_steps), 1.0)
    return 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))


def gradient_norm(gradients: Sequence[Tensor]) -> float:
    """2-norm of all gradients together, taken in float32 or better; 0 without any."""
    if not gradients:
        return 0.0
    device = gradients[0].device
    norms = [torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32)).to(device) for g in gradients]
    return float(torch.linalg.vector_norm(torch.stack(norms)))


def _copied(value: object) -> object:
    # torch keeps a loaded tensor itself where device and precision agree; two optimisers would then share their moments.
    return value.clone() if isinstance(value, Tensor) else value


def _summary(shapes: Sequence[Sequence[int]]) -> str:
    return f"{len(shapes)} parameters with {sum(math.prod(shape) for shape in shapes):,} numbers"
