"""Losses against PyTorch's own, against sums by hand, and with nothing valid."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hires.errors import ConfigError
from hires.models import losses
from hires.models.losses import BCEWithLogits, CrossEntropy, Dice, Focal

ONE_OF_EACH = [CrossEntropy(), CrossEntropy(weight=[1, 2, 3, 4], label_smoothing=0.1),
               Focal(), Focal(gamma=0.5, alpha=[1, 2, 3, 4]), Dice(), Dice(smooth=0), Dice(background=False)]


def case(*space: int, classes: int = 4, ignored: int = -100) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    output = torch.randn(2, classes, *space, generator=g, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, max(classes, 2), (2, *space), generator=g)
    target[torch.rand(target.shape, generator=g) < 0.3] = ignored
    return output, target


def same(a: Tensor, b: Tensor, x: Tensor) -> None:
    """Same value, same gradient."""
    (ga,), (gb,) = torch.autograd.grad(a.sum(), x), torch.autograd.grad(b.sum(), x)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ga, gb, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, [0.5, 0, 2, 3]])
@pytest.mark.parametrize("ignored", [-100, 255, 2])
@pytest.mark.parametrize("space", [(7,), (5, 6), (2, 3, 4)])
def test_cross_entropy_is_pytorchs(reduction: str, smoothing: float, weight: list[float] | None, ignored: int,
                                   space: tuple[int, ...]) -> None:
    x, target = case(*space, ignored=ignored)
    ours = CrossEntropy(weight, ignored, smoothing, reduction)
    given = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    theirs = nn.CrossEntropyLoss(given, ignore_index=ignored, label_smoothing=smoothing, reduction=reduction)
    same(ours(x, target), theirs(x, target), x)
    assert torch.equal(ours(x, target.to(torch.int16)), ours(x, target))    # masks come in small dtypes


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("pos", [None, 3.0, [1.0, 2.0, 3.0, 4.0]])
def test_bce_is_pytorchs(reduction: str, pos: float | list[float] | None) -> None:
    x, _ = case(5, 6)
    target = torch.rand(x.shape, dtype=torch.float64)
    given = None if pos is None else torch.tensor(pos, dtype=torch.float64).view(-1, 1, 1)
    theirs = nn.BCEWithLogitsLoss(pos_weight=given, reduction=reduction)
    same(BCEWithLogits(pos, None, reduction)(x, target), theirs(x, target), x)
    if pos is None or isinstance(pos, list):
        x, target = x[:, :, 0, 0], target[:, :, 0, 0]      # tags of a whole image: (N, C)
        given = None if given is None else given.view(-1)
        theirs = nn.BCEWithLogitsLoss(pos_weight=given, reduction=reduction)
        same(BCEWithLogits(pos, None, reduction)(x, target), theirs(x, target), x)


def test_bce_ignores() -> None:
    x, target = case(5, 6, classes=1, ignored=255)
    valid = (target != 255).unsqueeze(1)
    theirs = F.binary_cross_entropy_with_logits(x[valid], target.unsqueeze(1)[valid].double())
    same(BCEWithLogits(ignore_index=255)(x, target), theirs, x)


def test_focal_with_gamma_0_is_cross_entropy() -> None:
    x, target = case(5, 6)
    same(Focal(gamma=0)(x, target), F.cross_entropy(x, target), x)


def test_focal_by_hand() -> None:
    # Scores ln 3 and 0: p = 3/4 and 1/4.
    x = torch.tensor([[math.log(3)], [0.0]], dtype=torch.float64).T.reshape(1, 2, 1).repeat(1, 1, 2)
    target = torch.tensor([[0, 1]])
    first, second = (1 / 4) ** 2 * -math.log(3 / 4), (3 / 4) ** 2 * -math.log(1 / 4)
    assert Focal()(x, target).item() == pytest.approx((first + second) / 2, rel=1e-14)
    assert Focal(alpha=[2, 10])(x, target).item() == pytest.approx((2 * first + 10 * second) / 2, rel=1e-14)
    assert Focal(reduction="sum")(x, target).item() == pytest.approx(first + second, rel=1e-14)


def test_focal_one_channel_is_two_classes() -> None:
    x, target = case(5, 6, classes=1)
    two = torch.cat([torch.zeros_like(x), x], 1)
    same(Focal(alpha=[1, 3])(x, target), Focal(alpha=[1, 3])(two, target), x)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_focal_has_a_finite_slope_where_it_is_sure(gamma: float) -> None:
    x = torch.tensor([[[200.0], [-200.0]]], requires_grad=True)
    for target in ([[0]], [[1]]):
        (g,) = torch.autograd.grad(Focal(gamma)(x, torch.tensor(target)), x)
        assert g.isfinite().all()
    assert Focal(gamma)(x, torch.tensor([[1]])).item() == pytest.approx(400)


def test_dice_by_hand() -> None:
    # Two pixels, p(class 0) = 3/4 and 1/4; targets 0 and 0.
    x = torch.tensor([[[math.log(3), 0.0], [0.0, math.log(3)]]], dtype=torch.float64)
    target = torch.tensor([[0, 0]])
    # class 0: Σp = 1, Σy = 2, Σpy = 1; class 1: Σp = 1, Σy = 0.
    zero, one = 1 - (2 + 1) / (3 + 1), 1 - 1 / (1 + 1)
    assert Dice(reduction="none")(x, target)[0].tolist() == pytest.approx([zero, one])
    assert Dice()(x, target).item() == pytest.approx((zero + one) / 2)
    assert Dice(background=False)(x, target).item() == pytest.approx(one)
    assert Dice(smooth=0)(x, target).item() == pytest.approx((1 - 2 / 3 + 1) / 2)
    # Second pixel ignored: class 0: Σp = 3/4, Σy = 1.
    target = torch.tensor([[0, -100]])
    assert Dice(smooth=0, reduction="none")(x, target)[0, 0].item() == pytest.approx(1 - 1.5 / 1.75)
    # One channel: sigmoid(0) = 1/2.
    assert Dice(smooth=0)(torch.zeros(1, 1, 2), torch.tensor([[1, 0]])).item() == pytest.approx(1 - 1 / 2)


def test_dice_is_0_when_right_and_near_1_when_wrong() -> None:
    target = torch.randint(0, 3, (2, 8, 8))
    right = (F.one_hot(target, 3).movedim(-1, 1) * 200.0 - 100)
    assert Dice()(right, target).item() == pytest.approx(0, abs=1e-6)
    assert Dice(smooth=0)(right.roll(1, 1), target).item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=repr)
def test_nothing_valid_is_0_with_zero_gradient(loss: nn.Module) -> None:
    x, target = case(5, 6)
    value = loss(x, torch.full_like(target, -100))
    (g,) = torch.autograd.grad(value, x)
    assert value.item() == 0 and torch.equal(g, torch.zeros_like(x))


def test_nothing_valid_for_bce() -> None:
    x, target = case(5, 6, classes=1)
    value = BCEWithLogits(pos_weight=2.0, ignore_index=255)(x, torch.full_like(target, 255))
    (g,) = torch.autograd.grad(value, x)
    assert value.item() == 0 and torch.equal(g, torch.zeros_like(x))


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=repr)
def test_ignored_pixels_change_nothing(loss: nn.Module) -> None:
    x, target = case(5, 6)
    changed = torch.where((target == -100).unsqueeze(1), x + 5, x)
    torch.testing.assert_close(loss(changed, target), loss(x, target), rtol=1e-13, atol=0)
    (g,) = torch.autograd.grad(loss(x, target), x)
    assert not g.movedim(1, -1)[target == -100].any() and g.movedim(1, -1)[target != -100].any()


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=repr)
def test_gradients_by_differences(loss: nn.Module) -> None:
    x, target = case(2, 3)
    assert torch.autograd.gradcheck(lambda t: loss(t, target), (x,))


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=repr)
def test_float32_stays_float32(loss: nn.Module) -> None:
    x, target = case(5, 6)
    assert loss(x.float(), target).dtype == torch.float32


def test_weights_are_not_in_the_state_dict() -> None:
    assert not CrossEntropy([1, 2]).state_dict()


def test_build() -> None:
    loss = losses.build("CrossEntropy", weight=[1, 2], ignore_index=255)
    assert isinstance(loss, CrossEntropy) and loss.ignore_index == 255
    for name, args, said in [("crossentropy", {}, "did you mean CrossEntropy"),
                             ("L1", {}, "there is: BCEWithLogits"),
                             ("Dice", {"smoth": 1}, "no argument smoth; did you mean smooth")]:
        with pytest.raises(ConfigError, match=said):
            losses.build(name, **args)


def test_wrong_arguments_and_shapes() -> None:
    x, target = case(5, 6)
    for make, said in [(lambda: CrossEntropy(reduction="avg"), "`reduction`"),
                       (lambda: CrossEntropy(label_smoothing=2), "`label_smoothing`"),
                       (lambda: CrossEntropy(weight=[1, math.nan]), "`weight`"),
                       (lambda: Focal(gamma=-1), "`gamma`"),
                       (lambda: Dice(smooth=-1), "`smooth`"),
                       (lambda: CrossEntropy()(x, target[:, :-1]), r"shape \(2, 5, 6\), not \(2, 4, 6\)"),
                       (lambda: Dice()(x, target.double()), "whole-number"),
                       (lambda: BCEWithLogits()(x, target), "must be equal")]:
        with pytest.raises(ConfigError, match=said):
            make()
