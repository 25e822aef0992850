"""Guards the optimiser: windows, schedule, rates, clipping, refusal of what is not finite, several at once, exact resume."""

import json
import math
import signal

import pytest
import torch
from torch.nn import Parameter

from learners.optim import PolicyOptimizer, flush_together, gradient_norm, mini_batch, schedule_factor, step_together


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sgd(parameters, learning_rate):
    return torch.optim.SGD(parameters, lr=learning_rate)


def one_weight(**options):
    weight = Parameter(torch.zeros(1, dtype=torch.float64))
    return weight, PolicyOptimizer([weight], **{"learning_rate": 0.1, "factory": sgd, **options})


class TestWindows:
    def test_the_last_short_window_is_divided_by_its_own_size(self):
        """w = 0, losses w·x, x = 1…6, SGD .1, windows of 4: −.1·(1+2+3+4)/4 = −.25, then −.1·(5+6)/2 more = −.80 (not −.525)."""
        weight, optimizer = one_weight(gradient_accumulation_steps=4)
        norms = []
        for x in range(1, 5):
            optimizer.backward((weight * x).sum())
            norms.append(optimizer.step())
        assert weight.item() == pytest.approx(-0.25, abs=1e-12)
        for x in (5, 6):
            optimizer.backward((weight * x).sum())
            assert optimizer.step() is None
        assert weight.item() == pytest.approx(-0.25, abs=1e-12)
        assert optimizer.flush() == pytest.approx(5.5)
        assert weight.item() == pytest.approx(-0.80, abs=1e-12)
        assert norms == [None, None, None, 2.5]
        assert optimizer.updates == 2

    def test_losses_of_micro_batches_are_summed_not_averaged(self):
        """One mini-batch in two parts, 1·w and 2·w: gradient 3."""
        weight, optimizer = one_weight()
        for x in (1, 2):
            optimizer.backward((weight * x).sum())
        assert optimizer.step() == pytest.approx(3.0)
        assert weight.item() == pytest.approx(-0.3, abs=1e-12)

    def test_nothing_to_flush(self):
        weight, optimizer = one_weight()
        assert optimizer.flush() is None
        assert (weight.item(), optimizer.updates) == (0.0, 0)

    def test_flushing_an_open_mini_batch_is_an_error(self):
        weight, optimizer = one_weight()
        optimizer.backward(weight.sum())
        with pytest.raises(RuntimeError, match=r"call step\(\) before flush\(\)"):
            optimizer.flush()

    def test_gradients_from_before_are_not_counted(self):
        weight = Parameter(torch.zeros(1))
        weight.grad = torch.full((1,), 100.0)
        optimizer = PolicyOptimizer([weight], learning_rate=0.1, factory=sgd)
        optimizer.backward(weight.sum())
        assert optimizer.step() == 1.0

    def test_a_parameter_no_loss_reaches_stays(self):
        used, unused = Parameter(torch.ones(2)), Parameter(torch.ones(3))
        optimizer = PolicyOptimizer([used, unused], learning_rate=0.1)
        optimizer.backward(used.sum())
        optimizer.step()
        assert (used != 1).all()
        assert (unused == 1).all()


class TestSchedule:
    def test_it_moves_once_an_update(self):
        """Linear from .1 over 10 updates, windows of 3 mini-batches of 2 micro-batches: .07 after 3 updates.

        .01 would mean a step per mini-batch, .04 one counted twice on resume.
        """
        weight, optimizer = one_weight(lr_scheduler_type="linear", lr_decay_steps=10, gradient_accumulation_steps=3)
        for _ in range(9):
            for _ in range(2):
                optimizer.backward(weight.sum())
            optimizer.step()
        assert optimizer.updates == 3
        assert optimizer.learning_rate == pytest.approx(0.07, abs=1e-12)

        resumed_weight, resumed = one_weight(lr_scheduler_type="linear", lr_decay_steps=10, gradient_accumulation_steps=3)
        resumed.load_state_dict(optimizer.state_dict())
        assert (resumed.updates, resumed.learning_rate) == (3, optimizer.learning_rate)
        for _ in range(3):
            resumed.backward(resumed_weight.sum())
            resumed.step()
        assert resumed_weight.item() == pytest.approx(-0.07, abs=1e-12)

    def test_the_rate_is_the_one_applied(self):
        """Warm-up 2, linear to 0 at 4: factors ½, 1, 1, ½, 0, 0; the weight falls by .1 times each."""
        weight, optimizer = one_weight(lr_scheduler_type="linear", warmup_steps=2, lr_decay_steps=4)
        path = []
        for _ in range(6):
            optimizer.backward(weight.sum())
            optimizer.step()
            path.append(weight.item())
        assert path == pytest.approx([-0.05, -0.15, -0.25, -0.30, -0.30, -0.30], abs=1e-12)

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("constant", [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]),
            ("linear", [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0, 0]),
            ("cosine", [0.25, 0.5, 0.75, 1, 1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0, 0]),
        ],
    )
    def test_shapes(self, kind, expected):
        """w = 4, d = 8."""
        assert [schedule_factor(u, kind, 4, 8) for u in range(10)] == pytest.approx(expected, abs=1e-12)

    def test_wrong_options_are_named(self):
        with pytest.raises(ValueError, match="constant, linear, cosine, got 'step'"):
            schedule_factor(0, "step")  # type: ignore[arg-type]
        for decay in (None, 5):
            with pytest.raises(ValueError, match=f"'linear' needs lr_decay_steps above warmup_steps 5, got {decay}"):
                one_weight(lr_scheduler_type="linear", warmup_steps=5, lr_decay_steps=decay)


class TestClipping:
    def step_with(self, limit):
        """Gradient (3, 4), norm 5, SGD 1."""
        weight = Parameter(torch.zeros(2, dtype=torch.float64))
        optimizer = PolicyOptimizer([weight], learning_rate=1.0, max_grad_norm=limit, factory=sgd)
        optimizer.backward((weight * torch.tensor([3.0, 4.0])).sum())
        return optimizer.step(), weight.tolist()

    def test_a_long_gradient_is_shortened_and_its_own_norm_reported(self):
        norm, weights = self.step_with(0.5)
        assert norm == pytest.approx(5.0)
        assert weights == pytest.approx([-0.3, -0.4], abs=1e-12)

    @pytest.mark.parametrize("limit", [None, 5.0, 100.0])
    def test_a_short_one_stays(self, limit):
        assert self.step_with(limit) == (5.0, [-3.0, -4.0])

    def test_it_measures_the_mean_of_the_window(self):
        """Two mini-batches of gradient 3 make one of 3, not 6: no clipping at 4."""
        weight, optimizer = one_weight(max_grad_norm=4.0, gradient_accumulation_steps=2)
        for _ in range(2):
            optimizer.backward((3 * weight).sum())
            norm = optimizer.step()
        assert norm == 3.0
        assert weight.item() == pytest.approx(-0.3, abs=1e-12)

    def test_the_norm_is_that_of_all_parameters_together_in_mixed_precision(self):
        """√(3² + 4² + 12²) = 13."""
        gradients = [torch.tensor([3.0]), torch.tensor([4.0], dtype=torch.bfloat16), torch.tensor([[12.0]], dtype=torch.float64)]
        assert gradient_norm(gradients) == pytest.approx(13.0)
        assert gradient_norm([]) == 0.0


class TestNotFinite:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_loss(self, bad):
        weight, optimizer = one_weight()
        with pytest.raises(FloatingPointError, match=f"the loss of update 1 is {bad}; weights are unchanged"):
            optimizer.backward(weight.sum() * bad if math.isnan(bad) else weight.sum() + bad)
        assert (weight.item(), weight.grad, optimizer.updates) == (0.0, None, 0)

    @pytest.mark.parametrize("limit", [None, 1.0])
    def test_a_gradient_of_a_finite_loss(self, limit):
        """√x at 0: value 0, slope ∞."""
        fine, weight = Parameter(torch.ones(3)), Parameter(torch.zeros(2, 2))
        optimizer = PolicyOptimizer([fine, weight], learning_rate=0.1, max_grad_norm=limit)
        optimizer.backward(fine.sum() + weight.sqrt().sum())
        with pytest.raises(FloatingPointError, match=r"gradient of update 1 is inf, from parameters 1 \(shape \(2, 2\)\)"):
            optimizer.step()
        assert (fine == 1).all()
        assert (weight == 0).all()
        assert optimizer.updates == 0

    def test_the_mini_batch_is_dropped_and_its_window_kept(self):
        """1·w, then 5·w and a bad one together, then 2·w in its place: the mean gradient is (1 + 2) / 2."""
        weight, optimizer = one_weight(gradient_accumulation_steps=2)
        optimizer.backward(weight.sum())
        optimizer.step()
        optimizer.backward(5 * weight.sum())
        with pytest.raises(FloatingPointError):
            optimizer.backward(weight.sum() * math.nan)
        assert weight.grad.tolist() == [1.0]
        optimizer.backward(2 * weight.sum())
        assert optimizer.step() == 1.5
        assert weight.item() == pytest.approx(-0.15, abs=1e-12)

    def test_a_bad_gradient_is_found_at_the_mini_batch_that_has_it(self):
        """√w at 0: at the end of the window nobody could tell any more which one it was."""
        weight, optimizer = one_weight(gradient_accumulation_steps=3)
        optimizer.backward(weight.sum())
        optimizer.step()
        optimizer.backward(weight.sqrt().sum())
        with pytest.raises(FloatingPointError, match="the gradient of update 1 is inf"):
            optimizer.step()
        assert optimizer.flush() == 1.0
        assert weight.item() == pytest.approx(-0.1, abs=1e-12)


class TestMiniBatch:
    """Whatever stops one leaves everything as it was."""

    @pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), KeyboardInterrupt()])
    @pytest.mark.parametrize("window", [1, 3])
    def test_of_several_optimisers(self, error, window):
        weights, optimizers = zip(*(one_weight(gradient_accumulation_steps=window) for _ in range(2)), strict=True)
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.backward((weight + weight**2).sum())
        step_together(optimizers)
        before = plain([optimizer.state_dict() for optimizer in optimizers]), [weight.item() for weight in weights]
        with pytest.raises(type(error)), mini_batch(optimizers):
            optimizers[0].backward(7 * weights[0].sum())
            raise error
        assert (plain([optimizer.state_dict() for optimizer in optimizers]), [weight.item() for weight in weights]) == before

    def test_memory_that_is_lacking_is_noticed_before_the_first_step(self, monkeypatch):
        """AdamW takes room for its moments in its first step: for the second agent there is none."""
        weights = [Parameter(torch.ones(2)) for _ in range(2)]
        optimizers = [PolicyOptimizer([weight], learning_rate=0.1) for weight in weights]
        zeros_like = torch.zeros_like

        def full(tensor, **options):
            if tensor is weights[1]:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return zeros_like(tensor, **options)

        def gather():
            for weight, optimizer in zip(weights, optimizers, strict=True):
                optimizer.backward(weight.sum())

        gather()
        with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
            patch.setattr(torch, "zeros_like", full)
            step_together(optimizers)
        assert [weight.tolist() for weight in weights] == [[1.0, 1.0]] * 2
        assert [weight.grad for weight in weights] == [None, None]
        assert [optimizer.updates for optimizer in optimizers] == [0, 0]
        gather()
        step_together(optimizers)
        assert weights[0].tolist() == weights[1].tolist() != [1.0, 1.0]

    def test_ctrl_c_waits_until_all_have_stepped(self):
        weights, optimizers = zip(*(one_weight() for _ in range(2)), strict=True)
        optimizers[0]._optimizer.register_step_post_hook(lambda *_: signal.raise_signal(signal.SIGINT))
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.backward(weight.sum())
        with pytest.raises(KeyboardInterrupt):
            step_together(optimizers)
        assert [weight.item() for weight in weights] == [-0.1, -0.1]
        assert [optimizer.updates for optimizer in optimizers] == [1, 1]


class TestAdamW:
    def test_the_first_steps_by_hand(self):
        """Gradient g, AdamW: m̂ = g, v̂ = g², so the first step is w(1 − ηλ) − η g/(|g| + ε): from 1 with η = .1, λ = .5 .95 − .1."""
        weight = Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = PolicyOptimizer([weight], learning_rate=0.1, weight_decay=0.5, adam_epsilon=1e-12)
        optimizer.backward((3 * weight).sum())
        optimizer.step()
        assert weight.item() == pytest.approx(0.85, abs=1e-9)

    @pytest.mark.parametrize(
        "changed", [{"weight_decay": 0.3}, {"adam_betas": (0.5, 0.999)}, {"adam_betas": (0.9, 0.9)}, {"adam_epsilon": 0.1}]
    )
    def test_every_option_matters(self, changed):
        def train(**options):
            weight = Parameter(torch.ones(1, dtype=torch.float64))
            optimizer = PolicyOptimizer([weight], learning_rate=0.1, **options)
            for _ in range(3):
                optimizer.backward(weight.square().sum())
                optimizer.step()
            return weight.item()

        assert train(**changed) != train()

    def test_equals_torch_under_its_defaults(self):
        torch.manual_seed(0)
        ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        theirs.load_state_dict(ours.state_dict())
        optimizer = PolicyOptimizer(ours.parameters(), learning_rate=1e-2)
        reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2, foreach=False)
        for _ in range(5):
            x = torch.randn(4, 3)
            optimizer.backward(ours(x).square().mean())
            optimizer.step()
            reference.zero_grad()
            theirs(x).square().mean().backward()
            reference.step()
        torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=1e-5, atol=1e-7)

    def test_nothing_or_twice_is_refused(self):
        weight = Parameter(torch.zeros(1))
        with pytest.raises(ValueError, match="no parameters"):
            PolicyOptimizer([], learning_rate=0.1)
        with pytest.raises(ValueError, match="given twice"):
            PolicyOptimizer([weight, weight], learning_rate=0.1)


def plain(tree):
    """The tree with tensors as lists, after a trip through JSON; fails on anything else."""
    return json.loads(json.dumps(tree, default=lambda tensor: tensor.tolist()))


class TestResume:
    def new(self, **options):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        settings = {"learning_rate": 1e-2, "lr_scheduler_type": "cosine", "warmup_steps": 2, "lr_decay_steps": 9} | options
        return model, PolicyOptimizer(model.parameters(), max_grad_norm=0.5, gradient_accumulation_steps=3, **settings)

    def train(self, model, optimizer, batches, halves=2):
        """Mini-batches of two micro-batches; `halves=1` stops within the last."""
        for batch in batches:
            x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(batch))
            for half in range(2 if batch != batches[-1] else halves):
                optimizer.backward(model(x[half]).square().mean())
            if batch != batches[-1] or halves == 2:
                optimizer.step()

    @pytest.mark.parametrize("stop", range(1, 8))
    def test_interrupted_anywhere_equals_straight(self, stop):
        """Eight mini-batches in windows of 3: the stop falls on and within windows."""
        model, straight = self.new()
        self.train(model, straight, range(8))
        straight.flush()

        first_model, first = self.new()
        self.train(first_model, first, range(stop))
        second_model, second = self.new()
        second_model.load_state_dict(first_model.state_dict())
        second.load_state_dict(first.state_dict())
        # What the first does afterwards must not reach the second through shared tensors.
        self.train(first_model, first, range(20, 24))
        self.train(second_model, second, range(stop, 8))
        second.flush()

        for ours, theirs in zip(second_model.parameters(), model.parameters(), strict=True):
            assert torch.equal(ours, theirs)
        assert plain(second.state_dict()) == plain(straight.state_dict())

    def test_interrupted_within_a_mini_batch(self):
        model, straight = self.new()
        self.train(model, straight, range(2))
        first_model, first = self.new()
        self.train(first_model, first, range(2), halves=1)
        second_model, second = self.new()
        second.load_state_dict(first.state_dict())
        with pytest.raises(RuntimeError, match="mini-batch is open"):
            second.flush()
        x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
        second.backward(second_model(x[1]).square().mean())
        second.step()
        assert plain(second.state_dict()) == plain(straight.state_dict())

    def test_a_changed_learning_rate_takes_effect(self):
        model, first = self.new(lr_scheduler_type="constant", warmup_steps=0)
        self.train(model, first, range(3))
        _, second = self.new(lr_scheduler_type="constant", warmup_steps=0, learning_rate=7e-3)
        second.load_state_dict(first.state_dict())
        assert second.learning_rate == 7e-3

        frozen_model, frozen = self.new(lr_scheduler_type="constant", warmup_steps=0, learning_rate=0.0)
        before = [p.clone() for p in frozen_model.parameters()]
        frozen.load_state_dict(first.state_dict())
        self.train(frozen_model, frozen, range(3, 6))
        assert frozen.updates == 2
        assert all(torch.equal(a, b) for a, b in zip(before, frozen_model.parameters(), strict=True))

    def test_other_parameters_are_refused_before_anything_changes(self):
        model, optimizer = self.new()
        self.train(model, optimizer, range(4))
        before = plain(optimizer.state_dict())
        other = PolicyOptimizer([Parameter(torch.zeros(2, 2))], learning_rate=0.1)
        with pytest.raises(ValueError, match="of 1 parameters with 4 numbers cannot be loaded for 4 parameters with 21 numbers"):
            optimizer.load_state_dict(other.state_dict())
        assert plain(optimizer.state_dict()) == before

    def test_parameters_at_rates_of_their_own_come_back(self):
        def new():
            body, head = Parameter(torch.ones(2)), Parameter(torch.ones(3))
            return body, head, PolicyOptimizer([body], learning_rate=0.1, at_other_rates=[([head], 0.01)])

        def train(body, head, optimizer, numbers):
            for number in numbers:
                optimizer.backward((body * number).sum() + (head.square() * number).sum())
                optimizer.step()

        *straight, optimizer = new()
        train(*straight, optimizer, range(1, 5))
        *first, stopped = new()
        train(*first, stopped, range(1, 3))
        *second, resumed = new()
        with torch.no_grad():
            for ours, theirs in zip(second, first, strict=True):
                ours.copy_(theirs)
        resumed.load_state_dict(stopped.state_dict())
        train(*second, resumed, range(3, 5))
        for ours, theirs in zip(second, straight, strict=True):
            assert torch.equal(ours, theirs)


class TestOtherRates:
    def test_each_lot_has_its_own(self):
        """AdamW's first step without decay moves every weight by its rate: m̂/√v̂ is the gradient's sign."""
        weights = [Parameter(torch.zeros(1)) for _ in range(3)]
        body, head, other = weights
        optimizer = PolicyOptimizer([body], learning_rate=0.1, weight_decay=0.0, at_other_rates=[([head], 0.01), ([other], 1.0)])
        optimizer.backward((body - head + 2 * other).sum())
        optimizer.step()
        assert [weight.item() for weight in weights] == pytest.approx([-0.1, 0.01, -1.0], rel=1e-5)
        assert optimizer.learning_rate == 0.1

    def test_the_schedule_scales_them_all(self):
        """Linear over 4 updates: factors 1, .75, .5, .25 of .1 and of .01, each a whole step of AdamW for a constant gradient."""
        body, head = (Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
        options = {"weight_decay": 0.0, "lr_scheduler_type": "linear", "lr_decay_steps": 4}
        optimizer = PolicyOptimizer([body], learning_rate=0.1, at_other_rates=[([head], 0.01)], **options)
        for expected in (1.0, 1.75, 2.25, 2.5):
            optimizer.backward((body + head).sum())
            optimizer.step()
            assert (body.item(), head.item()) == pytest.approx((-0.1 * expected, -0.01 * expected), rel=1e-6)

    def test_the_norm_and_its_limit_are_of_all_together(self):
        body, head = (Parameter(torch.zeros(1)) for _ in range(2))
        optimizer = PolicyOptimizer([body], learning_rate=0.1, at_other_rates=[([head], 0.01)])
        optimizer.backward((3 * body + 4 * head).sum())
        assert optimizer.step() == pytest.approx(5.0)

    def test_an_empty_lot_is_left_out(self):
        weight = Parameter(torch.zeros(1))
        optimizer = PolicyOptimizer([], learning_rate=0.5, weight_decay=0.0, at_other_rates=[([], 0.1), ([weight], 0.01)])
        optimizer.backward(weight.sum())
        optimizer.step()
        assert weight.item() == pytest.approx(-0.01)
        assert optimizer.learning_rate == 0.01

    def test_a_parameter_in_two_lots_and_rates_for_a_factory_are_refused(self):
        weight, other = Parameter(torch.zeros(1)), Parameter(torch.zeros(1))
        with pytest.raises(ValueError, match="given twice"):
            PolicyOptimizer([weight], learning_rate=0.1, at_other_rates=[([weight], 0.01)])
        with pytest.raises(ValueError, match="one learning rate"):
            PolicyOptimizer([weight], learning_rate=0.1, at_other_rates=[([other], 0.01)], factory=sgd)


class TestTogether:
    """Several optimisers that step all or none."""

    def test_a_bad_gradient_of_one_stops_all(self):
        """√w at 0 has an infinite gradient under a finite loss."""
        weights, optimizers = zip(*(one_weight() for _ in range(3)), strict=True)
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.backward(weight.sqrt().sum() if weight is weights[1] else weight.sum())
        with pytest.raises(FloatingPointError, match="gradient of update 1"):
            step_together(optimizers)
        assert [weight.item() for weight in weights] == [0.0, 0.0, 0.0]
        assert all(weight.grad is None for weight in weights)
        assert [optimizer.updates for optimizer in optimizers] == [0, 0, 0]
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.backward(2 * weight.sum())
        assert step_together(optimizers) == [2.0, 2.0, 2.0]
        assert [weight.item() for weight in weights] == pytest.approx([-0.2, -0.2, -0.2])

    def test_each_keeps_its_window(self):
        weights, optimizers = zip(*(one_weight(gradient_accumulation_steps=size) for size in (1, 2)), strict=True)
        norms = []
        for x in (1, 3, 5):
            for weight, optimizer in zip(weights, optimizers, strict=True):
                optimizer.backward((weight * x).sum())
            norms.append(step_together(optimizers))
        assert norms == [[1.0, None], [3.0, 2.0], [5.0, None]]
        assert flush_together(optimizers) == [None, 5.0]
        assert [weight.item() for weight in weights] == pytest.approx([-0.9, -0.7])

    def test_flushing_is_all_or_none_too(self):
        """A gradient that goes bad while it waits."""
        weights, optimizers = zip(*(one_weight(gradient_accumulation_steps=4) for _ in range(2)), strict=True)
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.backward(weight.sum())
        step_together(optimizers)
        weights[1].grad.fill_(math.inf)
        with pytest.raises(FloatingPointError):
            flush_together(optimizers)
        assert [weight.item() for weight in weights] == [0.0, 0.0]
        assert weights[0].grad.item() == 1.0
        weights[1].grad.fill_(2.0)
        assert flush_together(optimizers) == [1.0, 2.0]
        optimizers[0].backward(weights[0].sum())
        with pytest.raises(RuntimeError, match="mini-batch is open"):
            flush_together(optimizers)
