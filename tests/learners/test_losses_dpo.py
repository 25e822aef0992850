"""Guards the preference losses over joint margins: values worked by hand, saturation, smoothing, one gradient for all agents."""

import math

import pytest
import torch

from learners.losses import dpo_loss, joint_margin


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def loss_and_gradient(margin, beta=0.1, **options):
    values = tensor(margin)
    loss = dpo_loss(values, beta, **options)
    loss.sum().backward()
    assert values.grad is not None
    return loss.item(), values.grad.item()


class TestDPOLoss:
    @pytest.mark.parametrize(
        ("margin", "loss", "gradient"),
        [
            (5.0, 0.474077, -0.0377541),  # (−10 − 12) − (−11 − 16) over two agents
            (-5.0, 0.974077, -0.0622459),  # swapped: 0.5 more
            (1.0, 0.644397, -0.0475021),  # margins 2 and −1
            (0.0, math.log(2), -0.05),  # an identical pair
        ],
    )
    def test_hand_worked(self, margin, loss, gradient):
        """β = .1: log(1 + e^{−βΔ}) and −β σ(−βΔ)."""
        assert loss_and_gradient(margin) == pytest.approx((loss, gradient), abs=1e-6)

    def test_each_log_probability_gets_the_gradient_of_the_joint_margin(self):
        """Chosen (−10, −12), rejected (−11, −16): −.0377541 for each chosen one, +.0377541 for each rejected one."""
        chosen, rejected = tensor(-10, -12), tensor(-11, -16)
        loss = dpo_loss((chosen - rejected).sum()[None], 0.1)
        loss.backward()
        assert loss.item() == pytest.approx(0.474077, abs=1e-6)
        assert chosen.grad is not None and rejected.grad is not None
        assert chosen.grad.tolist() == pytest.approx([-0.0377541] * 2, abs=1e-7)
        assert rejected.grad.tolist() == pytest.approx([0.0377541] * 2, abs=1e-7)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_saturated_margins_stay_finite(self, dtype):
        """βΔ = ∓104: log σ(−104) is −104, where log(σ(−104)) would be −∞ in float32."""
        margin = torch.tensor([-1040.0, 1040.0], dtype=dtype, requires_grad=True)
        loss = dpo_loss(margin, 0.1)
        loss.sum().backward()
        assert loss.dtype == dtype
        assert loss.tolist() == pytest.approx([104.0, 0.0], abs=1e-4)
        assert margin.grad is not None
        assert margin.grad.tolist() == pytest.approx([-0.1, 0.0], abs=1e-7)

    def test_label_smoothing_by_hand(self):
        """Δ = 5, β = .1, ε = .1: .9 · .474077 + .1 · .974077; −.1 (.9 σ(−.5) − .1 σ(.5))."""
        assert loss_and_gradient(5.0, label_smoothing=0.1) == pytest.approx((0.524077, -0.0277541), abs=1e-6)

    def test_a_smoothed_loss_is_least_where_the_preference_holds_with_that_probability(self):
        """σ(βΔ) = 1 − ε: the gradient changes its sign there, so margins do not grow for ever."""
        best = math.log(0.9 / 0.1) / 0.1
        assert loss_and_gradient(best, label_smoothing=0.1)[1] == pytest.approx(0.0, abs=1e-12)
        assert loss_and_gradient(best - 1, label_smoothing=0.1)[1] < 0 < loss_and_gradient(best + 1, label_smoothing=0.1)[1]

    @pytest.mark.parametrize("smoothing", [0.0, 0.2])
    def test_swapping_the_sides_turns_the_smoothing_around(self, smoothing):
        margin = torch.linspace(-30, 30, 13, dtype=torch.float64)
        torch.testing.assert_close(dpo_loss(margin, 0.3, smoothing), dpo_loss(-margin, 0.3, 1 - smoothing))

    @pytest.mark.parametrize("smoothing", [0.0, 0.3])
    def test_finite_differences(self, smoothing):
        margin = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul_(10).requires_grad_()
        assert torch.autograd.gradcheck(lambda m: dpo_loss(m, 0.3, smoothing), (margin,))


class TestJointMargin:
    def test_value_is_the_teams_and_gradient_the_parts_own(self):
        """δ = (2, −1): each agent's loss is .644397, its gradient −.0475021, and the other's part is a constant."""
        parts = tensor(2.0), tensor(-1.0)
        total = parts[0].detach() + parts[1].detach()
        for part in parts:
            loss = dpo_loss(joint_margin(part, total), 0.1)
            loss.backward()
            assert loss.item() == pytest.approx(0.644397, abs=1e-6)
            assert part.grad is not None
            assert part.grad.item() == pytest.approx(-0.0475021, abs=1e-7)

    def test_equals_the_sum_with_all_gradients_at_once(self):
        together, apart = (torch.randn(3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64) for _ in range(2))
        together.requires_grad_()
        apart.requires_grad_()
        dpo_loss(together.sum(0), 0.7).sum().backward()
        joint = apart.detach().sum(0)
        for row in range(3):
            dpo_loss(joint_margin(apart[row], joint), 0.7).sum().backward()
        assert together.grad is not None and apart.grad is not None
        torch.testing.assert_close(apart.grad, together.grad, rtol=1e-12, atol=1e-15)

    def test_precision_is_the_parts_and_the_value_exact(self):
        """Float32 has no .1 beside 3,333,333: the difference taken first, and the part added again, would give 0."""
        own = torch.tensor([1e7 / 3], dtype=torch.float32, requires_grad=True)
        joint = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
        margin = joint_margin(own, joint)
        assert margin.dtype == torch.float32
        assert margin.item() == joint.float().item()
        margin.backward()
        assert joint.grad is None
