"""Paths through points."""

import math

import pytest
import torch
from torch.testing import assert_close

from stylegan.sampling.curves import frame_positions, slerp, spherical, spline

CURVES = pytest.mark.parametrize("curve", [spherical, spline])
CLOSED = pytest.mark.parametrize("closed", [True, False])


@pytest.fixture
def points():
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def derivative(curve, t, step):
    return (curve(numbers(t + step)) - curve(numbers(t))) / step


@CURVES
@CLOSED
def test_spherical_and_spline_pass_through_their_points(curve, closed, points):
    assert_close(curve(points, closed=closed)(torch.arange(5)), points)


@CURVES
def test_spherical_and_spline_are_periodic_if_closed(curve, points):
    way = curve(points, closed=True)
    t = numbers(0, 0.25, 3.5, 4.75)
    assert_close(way(t + 5), way(t))
    assert torch.equal(way(numbers(5)), way(numbers(0)))


def test_spherical_interpolates_length_and_angle_linearly():
    way = spherical(numbers([3, 0], [0, 1]), closed=False)
    t = numbers(0, 1 / 3, 0.5, 1)
    found = way(t)
    assert_close(found.norm(dim=1), 3 - 2 * t)
    assert_close(torch.atan2(found[:, 1], found[:, 0]), t * math.pi / 2)


def test_slerp_and_spherical_of_equal_vectors_stay_constant():
    a = numbers([1, 2, 2])
    assert_close(slerp(a, a, numbers([0.3])), a / 3)
    assert_close(spherical(a.expand(2, 3), closed=True)(numbers(0.3, 1.9)), a.expand(2, 3))


@CLOSED
def test_spline_has_continuous_derivatives(closed, points):
    way = spline(points, closed=closed)
    inner = range(5) if closed else range(1, 4)
    for t in (float(i) or 5.0 for i in inner):
        before, after = derivative(way, t, -1e-6), derivative(way, t, 1e-6)
        assert_close(before, after, atol=1e-4, rtol=0)
        h = 1e-3
        second = [
            (way(numbers(t)) - 2 * way(numbers(t + s)) + way(numbers(t + 2 * s))) / h**2
            for s in (-h, h)
        ]
        assert_close(*second, atol=0.1, rtol=0)


def test_spline_matches_its_closed_form():
    hill = spline(numbers(0, 1, 0), closed=False)
    assert_close(hill(numbers(0.5, 1.5)), numbers(11 / 16, 11 / 16))
    swing = spline(numbers(1, -1), closed=True)  # its slopes at both points are 0
    assert_close(swing(numbers(0.25, 0.5, 1.25)), numbers(11 / 16, 0, -11 / 16))
    line = spline(numbers(2, 5, 8, 11), closed=False)
    assert_close(line(numbers(0.3, 2.9)), numbers(2.9, 10.7))


def test_frame_positions_leave_out_the_end_of_a_closed_path():
    assert_close(frame_positions(8, 4, closed=True), numbers(0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5))
    assert_close(frame_positions(5, 3, closed=False), numbers(0, 0.5, 1, 1.5, 2))
    assert_close(frame_positions(1, 3, closed=False), numbers(0))


@CURVES
def test_spherical_and_spline_need_two_points(curve, points):
    with pytest.raises(ValueError, match="at least 2 points"):
        curve(points[:1], closed=False)(numbers(0))
