"""Skin and hair of the faces recipe: colors of the skin; strands of hair, brows and beards."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from faces_head import RACES, Head, MakeHuman, bump, ramp, unit
from faces_person import Person
from scipy.spatial import cKDTree

# Colors are linear RGB.
TONES = {
    "african": (0.19, 0.085, 0.045),
    "asian": (0.62, 0.38, 0.23),
    "caucasian": (0.72, 0.44, 0.32),
}
HAIR = {
    "black": (0.012, 0.010, 0.009),
    "dark brown": (0.035, 0.019, 0.011),
    "brown": (0.085, 0.042, 0.019),
    "chestnut": (0.16, 0.058, 0.024),
    "blond": (0.50, 0.30, 0.12),
    "red": (0.34, 0.085, 0.02),
    "gray": (0.36, 0.35, 0.34),
    "white": (0.75, 0.74, 0.72),
}
IRIS = {
    "brown": (0.07, 0.026, 0.010),
    "hazel": (0.17, 0.095, 0.03),
    "green": (0.10, 0.20, 0.08),
    "gray": (0.22, 0.27, 0.30),
    "blue": (0.10, 0.24, 0.45),
}
LIPSTICKS = ((0.50, 0.03, 0.05), (0.42, 0.10, 0.10), (0.55, 0.12, 0.16), (0.25, 0.03, 0.05))
GUIDES = 420  # strands that are grown; the others follow them
SCALP_CANDIDATES = 3  # points tried for each strand
# Height of the hairline by the angle in degrees around the vertical axis through the ears, from
# the front (0) over the ear (90) to the nape (180).
HAIRLINE = {
    0: 0.66, 22: 0.66, 36: 0.60, 48: 0.42, 58: 0.24, 65: 0.02, 76: -0.14, 86: 0.06, 96: 0.04,
    108: -0.25, 125: -0.45, 180: -0.62,
}  # fmt: skip
# Half the width of the face that hanging hair leaves free, by height.
FACE_WIDTH = {-1.3: 0.46, -0.9: 0.47, -0.5: 0.56, 0.0: 0.63, 0.35: 0.62, 0.6: 0.5, 0.85: 0.0}
# How much of the scalp's color is that of hair, by style.
SCALP_COVER = {"bald": 0.0, "buzz": 0.6, "short": 0.85, "quiff": 0.85}
FULL_SCALP_COVER = 0.93
HANGING = ("curly", "bob", "long")
WHORL = np.array([0.08, 0.95, -0.75])  # the point of the crown from which short hair parts


@dataclass(frozen=True)
class Cut:
    """How a hair style grows; lengths in heights of the head above the eyes."""

    strands: int
    points: int  # of each strand
    shortest: float
    longest: float
    comb: float  # strength of the direction it is combed in
    lift: float  # of the roots off the scalp
    gravity: float
    volume: float  # thickness of the hair on the scalp
    curl: float  # radius of the coils
    turns: float  # of a coil
    radius: float  # of a strand at its root


CUTS = {
    "buzz": Cut(5500, 3, 0.05, 0.12, 0.4, 1.0, 0.0, 0.0, 0.0, 0.0, 0.010),
    "short": Cut(3600, 7, 0.28, 0.55, 1.0, 0.55, 0.10, 0.10, 0.01, 1.0, 0.014),
    "quiff": Cut(3600, 7, 0.25, 0.50, 0.9, 1.0, 0.02, 0.16, 0.01, 1.0, 0.014),
    "afro": Cut(4500, 9, 0.22, 0.60, 0.1, 1.3, 0.02, 0.0, 0.05, 3.5, 0.014),
    "curly": Cut(3600, 12, 0.60, 1.50, 0.6, 0.9, 0.30, 0.16, 0.07, 3.5, 0.015),
    "bob": Cut(3600, 11, 1.35, 1.85, 0.9, 0.22, 0.38, 0.13, 0.02, 1.2, 0.015),
    "long": Cut(3800, 12, 2.10, 3.00, 0.9, 0.22, 0.38, 0.12, 0.03, 2.0, 0.015),
    "tied": Cut(3600, 8, 0.0, 0.0, 1.0, 0.12, 0.0, 0.05, 0.0, 0.0, 0.014),
}


class Surface:
    """The skin as points that strands grow from and are pushed off."""

    def __init__(self, body: MakeHuman, head: Head) -> None:
        self.points = head.skin
        self.normals = head.normals
        self.triangles = body.skin.triangles
        a, b, c = (head.skin[self.triangles[:, i]] for i in range(3))
        self.areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
        middles = (a + b + c) / 3
        normals = unit(self.normals[self.triangles].sum(axis=1))
        near = middles[:, 1] > -2.6
        self.near_points = np.concatenate([head.skin, middles[near]])
        self.near_normals = np.concatenate([head.normals, normals[near]])
        self.tree = cKDTree(self.near_points)

    def scatter(
        self, rng: np.random.Generator, count: int, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Random points (count, 3) and normals on triangles all of whose vertices are `where`."""
        areas = self.areas * where[self.triangles].all(axis=1)
        if not areas.any():
            return np.zeros((0, 3)), np.zeros((0, 3))
        picked = self.triangles[rng.choice(len(areas), count, p=areas / areas.sum())]
        weights = rng.dirichlet((1, 1, 1), count)[:, :, None]
        points = (self.points[picked] * weights).sum(axis=1)
        return points, unit((self.normals[picked] * weights).sum(axis=1))

    def pushed(self, positions: np.ndarray, margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions (K, 3) moved to `margin` (K,) above the skin at least, and its normals."""
        _, nearest = self.tree.query(positions)
        normals = self.near_normals[nearest]
        gap = ((positions - self.near_points[nearest]) * normals).sum(axis=1)
        push = np.clip(margin - gap, 0, 0.5) * (gap > -0.8)
        return positions + normals * push[:, None], normals


def angle_around(points: np.ndarray, ear_z: float) -> np.ndarray:
    """Degrees around the vertical axis through the ears: 0 in front, 90 at them, 180 behind."""
    return np.degrees(np.arctan2(np.abs(points[:, 0]), points[:, 2] - ear_z))


def scalp_density(
    points: np.ndarray, head: Head, receding: float, ragged: np.ndarray
) -> np.ndarray:
    """How densely hair grows at points (N, 3) of the skin, 0 to 1.

    `ragged` (4,) are phases of the hairline's waves.
    """
    angle = angle_around(points, head.ear[2])
    line = np.interp(angle, list(HAIRLINE), list(HAIRLINE.values()))
    waves = sum(
        np.sin(angle * frequency + phase)
        for frequency, phase in zip((0.09, 0.17, 0.31, 0.53), ragged, strict=True)
    )
    line = line + 0.012 * waves
    temples = bump((angle - 38) / 16)
    crown = bump(angle / 45)
    line = line + receding * (0.28 * temples + 0.10 * crown)
    density = ramp(points[:, 1] - line, -0.05, 0.06)
    thin = bump((points - [0, 0.98, -0.6]) / 0.5).prod(axis=1)  # the crown of balding men
    return density * (1 - np.clip(receding * 1.6 - 0.6, 0, 1) * thin)


# Hair of the head


@dataclass(frozen=True)
class Combing:
    """How a person's hair lies."""

    part: float  # x of the parting
    sweep: str  # "aside", "back", "forward" or "tied"
    side: float  # -1 or 1: where a fringe is combed to


def knot_of(head: Head) -> np.ndarray:
    """Where tied hair comes together, behind the head."""
    return np.array([0.0, 0.30, head.ear[2] - 1.0])


def combed(
    positions: np.ndarray, normals: np.ndarray, sides: np.ndarray, head: Head, combing: Combing
) -> np.ndarray:
    """The direction (K, 3) along the skin in which hair is combed at these positions."""
    ones = np.ones(len(positions))
    if combing.sweep == "tied":
        wanted = knot_of(head) - positions
    elif combing.sweep == "back":
        wanted = np.stack([0.15 * sides, 0.15 * ones, -ones], axis=1)
    elif combing.sweep == "forward":
        wanted = positions - WHORL + np.array([0.25 * combing.side, -0.1, 0.15])
    else:
        wanted = np.stack([sides, -0.25 * ones, -0.45 * ones], axis=1)
        behind = ramp(angle_around(positions, head.ear[2]), 90, 130)[:, None]
        wanted = wanted * (1 - behind) + behind * np.stack([0.2 * sides, -ones, 0 * ones], axis=1)
    wanted = unit(wanted)
    return unit(wanted - normals * (wanted * normals).sum(axis=1, keepdims=True))


def off_the_face(positions: np.ndarray, head: Head) -> np.ndarray:
    """Hanging hair moved to the sides of the face, where it would cross it."""
    x, y, z = positions.T
    width = np.interp(y, list(FACE_WIDTH), list(FACE_WIDTH.values()))
    in_front = ramp(z, head.ear[2] + 0.15, head.ear[2] + 0.45)
    inward = np.clip(width - np.abs(x), 0, None) * in_front
    moved_x = x + np.where(x < 0, -1.0, 1.0) * inward
    too_far = np.clip(z - (head.ear[2] + 0.62), 0, None) * ramp(-y, -0.5, -0.1)
    return np.stack([moved_x, y, z - 0.6 * too_far], axis=1)


def grow_guides(
    rng: np.random.Generator,
    surface: Surface,
    head: Head,
    roots: np.ndarray,
    normals: np.ndarray,
    sides: np.ndarray,
    lengths: np.ndarray,
    fringe: np.ndarray,
    cut: Cut,
    combing: Combing,
) -> np.ndarray:
    """Strands (K, P, 3) that leave the skin, follow the comb, then fall, and stay off the face."""
    count = len(roots)
    step = (lengths / (cut.points - 1))[:, None]
    margin = cut.volume * rng.uniform(0.25, 1, count)
    to_brow = unit(np.array([0.35 * combing.side, -0.35, 1.0]))
    positions = roots.copy()
    skin_normals = normals
    direction = unit(normals * cut.lift + rng.normal(0, 0.08, (count, 3)))
    strand = [roots]
    for point in range(1, cut.points):
        along = combed(positions, skin_normals, sides, head, combing)
        along = np.where(fringe[:, None], to_brow, along)
        grown = np.linalg.norm(positions - roots, axis=1)[:, None]
        pull = cut.comb * (1 - 0.9 * ramp(grown, 0.2, 0.9)) * np.where(fringe[:, None], 0.8, 1)
        fall = np.array([0.0, -cut.gravity, 0.0]) * (0.4 + 1.4 * ramp(grown, 0.3, 1.1))
        lift = normals * cut.lift * max(1 - point / 3, 0)
        direction = unit(direction + along * pull + fall + lift + rng.normal(0, 0.05, (count, 3)))
        moved = positions + direction * step
        if combing.sweep == "tied":
            moved = positions + (knot_of(head) - positions) / (cut.points - point)
        away = np.where(fringe[:, None], moved, off_the_face(moved, head))
        pushed, skin_normals = surface.pushed(away, margin * min(point / 2, 1) + 0.01)
        direction = unit(pushed - positions)
        positions = pushed
        strand.append(positions)
    return np.stack(strand, axis=1)


def followed(
    rng: np.random.Generator,
    guides: np.ndarray,
    guide_sides: np.ndarray,
    roots: np.ndarray,
    sides: np.ndarray,
) -> np.ndarray:
    """Strands (K, P, 3) from these roots, shaped like the guides (G, P, 3) near them."""
    at_guides = np.column_stack([guides[:, 0], 0.5 * guide_sides])
    distance, nearest = cKDTree(at_guides).query(np.column_stack([roots, 0.5 * sides]), k=3)
    weights = 1 / (distance + 0.02)
    weights /= weights.sum(axis=1, keepdims=True)
    offsets = guides - guides[:, :1]
    shape = (offsets[nearest] * weights[:, :, None, None]).sum(axis=1)
    points = guides.shape[1]
    t = np.linspace(0, 1, points)[None, :, None]
    size = rng.uniform(0.85, 1.05, (len(roots), 1, 1))
    spread = (
        rng.normal(0, 0.035, (len(roots), 1, 3))
        * t
        * np.linalg.norm(shape[:, -1:], axis=2)[..., None]
    )
    return roots[:, None] + shape * size + spread


def coiled(
    rng: np.random.Generator, strands: np.ndarray, radius: float, turns: float, locks: int
) -> np.ndarray:
    """Strands wound around their own course; those of one lock wind together."""
    count, points, _ = strands.shape
    lock = cKDTree(strands[rng.choice(count, min(locks, count), replace=False), 0]).query(
        strands[:, 0]
    )[1]
    phase = rng.uniform(0, 2 * np.pi, lock.max() + 1)[lock] + rng.normal(0, 0.5, count)
    speed = turns * rng.uniform(0.8, 1.25, lock.max() + 1)[lock]
    t = np.linspace(0, 1, points)
    turn = phase[:, None] + 2 * np.pi * speed[:, None] * t
    along = unit(np.gradient(strands, axis=1))
    first = unit(np.cross(along, [0.3, 0.2, 1.0]))
    second = np.cross(along, first)
    grown = np.minimum(3 * t, 1)[None, :, None]
    wound = np.cos(turn)[..., None] * first + np.sin(turn)[..., None] * second
    return strands + radius * grown * wound


def draw_combing(rng: np.random.Generator, person: Person) -> Combing:
    """Where hair is parted, and which way it is combed."""
    side = 1.0 if rng.random() < 0.5 else -1.0
    part = float(side * rng.choice([0.0, 0.25, 0.35]) + rng.normal(0, 0.04))
    sweep = "aside"
    if person.hair_style == "tied":
        sweep = "tied"
    elif person.hair_style in ("short", "buzz"):
        sweep = str(rng.choice(["aside", "back", "forward"], p=[0.35, 0.2, 0.45]))
    elif person.hair_style == "quiff":
        sweep = "back"
    elif person.hair_style in HANGING and not person.fringe:
        sweep = "back" if rng.random() < 0.15 else "aside"
    return Combing(part, sweep, side)


def grow_hair(
    rng: np.random.Generator,
    body: MakeHuman,
    surface: Surface,
    head: Head,
    person: Person,
    density: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """The strands (K, P, 3) of a person's hair; none of a bald one's."""
    if person.hair_style == "bald":
        return np.zeros((0, 2, 3))
    cut = CUTS[person.hair_style]
    combing = draw_combing(rng, person)
    around = (body.ears < 0.3) & (head.skin[:, 1] > -0.8)
    points, normals = surface.scatter(rng, cut.strands * SCALP_CANDIDATES, around)
    grows = rng.random(len(points)) < density(points)
    roots, normals = points[grows][: cut.strands], normals[grows][: cut.strands]
    sides = np.sign(roots[:, 0] - combing.part + rng.normal(0, 0.04, len(roots)))
    fringe = np.zeros(len(roots), bool)
    if person.fringe:
        front = angle_around(roots, head.ear[2]) < 42 + rng.normal(0, 3)
        fringe = front & (roots[:, 2] > -0.25 + rng.normal(0, 0.06, len(roots)))
    length = rng.uniform(cut.shortest, cut.longest)
    lengths = np.full(len(roots), length)
    if person.hair_style in ("short", "quiff"):
        lengths *= 0.35 + 0.75 * ramp(roots[:, 1], 0.0, 0.7)
    lengths = np.where(fringe, 0.22 + 0.75 * (0.9 - 0.35) * rng.uniform(0.9, 1.1), lengths)
    picked = rng.choice(len(roots), min(GUIDES, len(roots)), replace=False)
    guides = grow_guides(
        rng, surface, head, roots[picked], normals[picked], sides[picked], lengths[picked],
        fringe[picked], cut, combing,
    )  # fmt: skip
    strands = followed(rng, guides, sides[picked] + 3 * fringe[picked], roots, sides + 3 * fringe)
    if cut.curl:
        size = cut.curl * rng.uniform(0.5, 1.3)
        locks = 700 if person.hair_style in ("afro", "curly") else 160
        wound = coiled(rng, strands, size, cut.turns, locks)
        strands = np.where(fringe[:, None, None], strands, wound)
    if person.hair_style in HANGING:
        hanging = strands[~fringe, 2:]
        strands[~fringe, 2:] = off_the_face(hanging.reshape(-1, 3), head).reshape(hanging.shape)
    return strands


# Beards


def beard_density(points: np.ndarray, head: Head, kind: str) -> np.ndarray:
    """How densely a beard of this kind grows at points (N, 3) of the face, 0 to 1."""
    x, y = np.abs(points[:, 0]), points[:, 1]
    mouth, chin = head.mouth[1], head.chin[1]
    half = head.mouth_corners[0, 0] - head.mouth[0]
    from_middle = np.minimum(np.square(x / half), 1)
    upper, lower = (edge + from_middle * (mouth - edge) for edge in head.lips)
    above = ramp(y - upper, -0.01, 0.02)
    below = ramp(lower - y, 0.0, 0.03)
    cheek = np.interp(x, [half * 0.9, half + 0.15, 0.60], [mouth + 0.04, mouth + 0.14, -0.12])
    jaw = ramp(cheek - y, -0.02, 0.10) * ramp(x, half * 0.85, half * 1.15)
    chin_part = below * np.maximum(ramp(x, 0.30, 0.12), 0.7)
    moustache = above * ramp(head.nose[1] - y, -0.01, 0.03) * ramp(x, half * 1.35, half * 1.1)
    moustache *= 0.5 + 0.5 * ramp(x, 0.0, 0.05)
    corners = bump((x - half * 1.18) / 0.07) * ramp(y, head.nose[1], mouth + 0.05)
    neck = ramp(y, chin - 0.30, chin - 0.12)
    front = ramp(points[:, 2], head.ear[2] + 0.02, head.ear[2] + 0.15)
    goatee = np.maximum(below * ramp(x, half * 1.4, half * 1.1), corners)
    parts = {
        "moustache": np.maximum(moustache, 0.6 * corners * ramp(y, mouth - 0.06, mouth)),
        "goatee": np.maximum(moustache, goatee),
    }
    density = parts.get(kind, np.maximum.reduce([moustache, jaw, chin_part, corners]))
    lips = (1 - above) * (1 - below) * (x < half)
    return np.clip(density * (1 - lips), 0, 1) * neck * front


BEARD_LENGTHS = {"moustache": 0.13, "goatee": 0.12, "short": 0.09, "full": 0.24}
BEARD_STRANDS = {"moustache": 800, "goatee": 1400, "short": 3000, "full": 3600}


def grow_beard(
    rng: np.random.Generator, body: MakeHuman, surface: Surface, head: Head, kind: str
) -> np.ndarray:
    """The strands (K, P, 3) of a beard; none of stubble, which is a color."""
    if kind not in BEARD_LENGTHS:
        return np.zeros((0, 2, 3))
    face = (head.skin[:, 2] > head.ear[2] - 0.1) & (head.skin[:, 1] < 0) & (body.lips < 0.6)
    face &= (head.skin[:, 1] > head.chin[1] - 0.4) & (body.mouth_inside < 0.5)
    points, normals = surface.scatter(rng, 4 * BEARD_STRANDS[kind], face)
    grows = rng.random(len(points)) < beard_density(points, head, kind)
    roots, normals = points[grows], normals[grows]
    roots, normals = roots[: BEARD_STRANDS[kind]], normals[: BEARD_STRANDS[kind]]
    on_lip = roots[:, 1] > head.mouth[1]
    outward = np.sign(roots[:, 0]) * np.where(on_lip, 0.9, 0.15)
    down = np.stack([outward, -np.ones(len(roots)), 0.1 * np.ones(len(roots))], axis=1)
    along = down - normals * (down * normals).sum(axis=1, keepdims=True)
    length = BEARD_LENGTHS[kind] * rng.uniform(0.7, 1.5)
    lengths = length * rng.uniform(0.6, 1.15, len(roots)) * np.where(on_lip, 0.8, 1.0)
    t = np.linspace(0, 1, 6)[None, :, None]
    rise = normals[:, None] * 0.35 * t * (1 - 0.4 * t)
    drop = np.array([0.0, -0.35, 0.0]) * t**2
    course = unit(along)[:, None] * t + rise + drop
    strands = roots[:, None] + course * lengths[:, None, None]
    strands += rng.normal(0, 0.02, (len(roots), 1, 3)) * t
    return coiled(rng, strands, 0.012 * rng.uniform(0.3, 1.6), 1.5, 300)


# Brows


def grow_brows(
    rng: np.random.Generator, body: MakeHuman, surface: Surface, head: Head, person: Person
) -> np.ndarray:
    """The strands (K, 4, 3) of both brows."""
    front = (head.skin[:, 2] > -0.5) & (np.abs(head.skin[:, 1] - 0.25) < 0.5)
    skin, normals = surface.scatter(rng, 6000, front)
    tree = cKDTree(skin[:, :2])
    width = 0.030 + 0.014 * person.male + rng.normal(0, 0.006)
    arch = 0.045 * (1 - 0.6 * person.male) + rng.normal(0, 0.012)
    slope = rng.normal(0.0, 0.02)
    count = int(rng.uniform(150, 300) * (0.75 + 0.4 * person.male))
    reach = rng.uniform(1.25, 1.5)
    strands = []
    for ball in head.eyes:
        sign = np.sign(ball.center[0])
        t = rng.beta(1.0, 1.15, count)
        x = ball.center[0] + sign * ball.radius * (-1.0 + (reach + 1.0) * t)
        own = front & (head.skin[:, 0] * sign > 0)
        at = head.skin[own]
        near = body.brow_motion[own] ** 6 * bump((x[:, None] - at[None, :, 0]) / 0.12)
        ridge = (near * at[None, :, 1]).sum(axis=1) / (near.sum(axis=1) + 1e-9) - 0.055
        course = arch * np.sin(np.pi * np.clip(0.85 * t, 0, 1)) - 0.08 * np.clip(t - 0.7, 0, 1)
        thickness = width * (1 - 0.7 * t**1.5) * np.minimum(0.6 + 3 * t, 1)
        y = ridge + course + slope * t + rng.normal(0, 0.006)
        y = y + rng.uniform(-0.5, 0.5, count) * 2 * thickness * rng.uniform(0.3, 1, count)
        nearest = tree.query(np.column_stack([x, y]))[1]
        roots, up = skin[nearest], normals[nearest]
        along = np.stack([sign * (0.35 + t), 0.8 - 1.05 * t, 0 * t], axis=1)
        along += rng.normal(0, 0.15, along.shape)
        along = unit(along - up * (along * up).sum(axis=1, keepdims=True))
        lengths = 0.065 * rng.uniform(0.5, 1.1, count)[:, None, None]
        s = np.linspace(0, 1, 4)[None, :, None]
        strands.append(
            roots[:, None] + up[:, None] * (0.006 + 0.012 * s) + along[:, None] * s * lengths
        )
    return np.concatenate(strands)


# Skin


@dataclass(frozen=True)
class Complexion:
    """Colors of a person, linear RGB."""

    skin: np.ndarray
    hair: np.ndarray
    lips: np.ndarray
    iris: np.ndarray
    cloth: np.ndarray


def draw_complexion(rng: np.random.Generator, person: Person) -> Complexion:
    """The colors of a person, which vary around those of ancestry, hair and eyes."""
    tone = sum(np.array(TONES[race]) * getattr(person, race) for race in RACES)
    ruddy = rng.normal(0, 0.05)
    skin = tone * math.exp(rng.normal(0, 0.12)) * np.array([1 + ruddy, 1, 1 - 0.5 * ruddy])
    hair = np.array(HAIR[person.hair_color]) * math.exp(rng.normal(0, 0.2))
    lips = skin * np.array([0.98, 0.58, 0.58])
    if person.lipstick:
        color = np.array(LIPSTICKS[rng.integers(len(LIPSTICKS))])
        lips = color * rng.uniform(0.7, 1.3) * (0.5 + skin[0])
    iris = np.array(IRIS[person.eye_color]) * rng.uniform(0.75, 1.3)
    hue = rng.uniform(0, 2 * math.pi) + np.array([0, 2, 4]) * math.pi / 3
    vivid = rng.uniform(0, 0.9)
    cloth = math.exp(rng.uniform(-3.2, -0.4)) * (1 + vivid * np.cos(hue))
    return Complexion(
        skin=np.clip(skin, 0, 0.85),
        hair=np.clip(hair, 0, 0.9),
        lips=np.clip(lips, 0, 0.8),
        iris=iris,
        cloth=np.clip(cloth, 0, 0.8),
    )


def cloth_cover(head: Head, kind: str) -> np.ndarray:
    """Where (N,) the skin is under clothes, 0 to 1."""
    x, y, z = head.skin.T
    neck = head.chin[1] - 0.12
    front = ramp(z, head.ear[2] - 0.5, head.ear[2] + 0.2)
    edge = {
        "turtleneck": neck + 0 * x,
        "crew": neck - 0.15 - 0.12 * front,
        "v-neck": neck - 0.24 - 0.9 * front * bump(x / 0.35),
        "shirt": neck - 0.04 - 0.8 * front * bump(x / 0.16) - 0.1 * front,
    }[kind]
    return ramp(edge - y, 0, 0.04)


def wrinkle_lines(head: Head, person: Person) -> tuple[np.ndarray, np.ndarray]:
    """Phase and depth (N,) of wrinkles: lines where |sin(phase)| is 1. They run across the
    forehead, fan out from the corners of the eyes, and lie below the eyes and beside the mouth."""
    x, y, z = head.skin.T
    side = np.abs(x)
    age = ramp(np.array(person.years), 28, 80)
    eye = head.eyes[0].center
    raised = age * (0.6 + 0.3 * max(person.brows, 0))
    forehead = bump(x / 0.42) * bump((y - 0.47) / 0.16) * raised
    corner = np.array([eye[0] + 0.17, eye[1] - 0.01])
    fan = np.arctan2(y - corner[1], side - corner[0] + 0.08)
    beside_eye = bump((side - corner[0] - 0.10) / 0.08) * bump((y - corner[1]) / 0.14)
    crow = beside_eye * (age + 0.2 * person.smile)
    under = bump((side - eye[0]) / 0.17) * bump((y + 0.20) / 0.07) * age
    mouth_y = head.mouth[1]
    half = head.mouth_corners[0, 0] - head.mouth[0]
    fold_x = np.interp(y, [mouth_y - 0.1, head.nose[1]], [half * 1.3, 0.15])
    beside_mouth = (y < head.nose[1] + 0.03) * (y > mouth_y - 0.14)
    fold = bump((side - fold_x) / 0.05) * beside_mouth
    fold = fold * np.clip(0.05 + 0.55 * age + 0.18 * person.smile, 0, 1)
    across = y * math.pi / 0.115
    below = (y + 0.20) * math.pi / 0.09 + math.pi / 2
    along = (side - fold_x) * math.pi / 0.16 + math.pi / 2 - 2.5
    phases = np.stack([across, fan * 6, below, along])
    depths = np.stack([forehead, 0.9 * crow, 0.7 * under, fold]) * (z > head.ear[2] + 0.1)
    strongest = depths.argmax(axis=0)
    vertices = np.arange(len(x))
    return phases[strongest, vertices], depths[strongest, vertices]


@dataclass(frozen=True)
class Regions:
    """Parts of the face at the vertices of the skin (N,), 0 to 1."""

    front: np.ndarray
    cheeks: np.ndarray
    nose: np.ndarray
    sockets: np.ndarray
    lids: np.ndarray
    lips: np.ndarray
    mouth_inside: np.ndarray


def face_regions(body: MakeHuman, head: Head) -> Regions:
    x, y, z = head.skin.T
    front = ramp(z, head.ear[2] + 0.05, head.ear[2] + 0.25)
    from_eye = np.abs(x) - head.eyes[0].center[0]
    inside = ramp(body.mouth_inside, 0.3, 0.7) * (1 - ramp(body.lips, 0.1, 0.5))
    return Regions(
        front=front,
        cheeks=bump((np.abs(x) - 0.40) / 0.22) * bump((y + 0.36) / 0.20) * front,
        nose=bump(x / 0.14) * bump((y - head.nose[1]) / 0.13) * front,
        sockets=bump(from_eye / 0.2) * bump((y - 0.02) / 0.11) * front,
        lids=bump(from_eye / 0.18) * bump((y - 0.075) / 0.05) * front,
        lips=ramp(body.lips, 0.15, 0.75),
        mouth_inside=inside,
    )


def tinted(color: np.ndarray, factors: tuple[float, ...], amount: np.ndarray) -> np.ndarray:
    """Colors (N, 3) multiplied by the factors as far as the amount (N,) says."""
    return color * (1 + (np.array(factors) - 1) * np.clip(amount, 0, 1)[:, None])


def blended(color: np.ndarray, other: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Colors (N, 3) replaced by another color (3,) as far as the amount (N,) says."""
    return color + (other - color) * amount[:, None]


@dataclass(frozen=True)
class Paint:
    """The looks of the skin, and of the clothes that are part of its mesh."""

    attributes: dict[str, np.ndarray]  # of the vertices, (N,) or (N, 3), by the shader's names
    thickness: np.ndarray  # (N,) of hair and clothes on it


def paint_face(
    rng: np.random.Generator, body: MakeHuman, regions: Regions, person: Person, colors: Complexion
) -> np.ndarray:
    """Colors (N, 3) of the bare skin, with blush, make-up and lips."""
    color = np.tile(colors.skin, (len(regions.front), 1))
    blush = rng.uniform(0.2, 0.9) * (regions.cheeks + 0.7 * regions.nose) + 0.5 * body.ears
    color = tinted(color, (1.10, 0.80, 0.78), blush)
    color = tinted(color, (0.72, 0.62, 0.62), (0.15 + 0.3 * rng.random()) * regions.sockets)
    if person.lipstick and rng.random() < 0.6:
        color = tinted(color, (0.45, 0.38, 0.42), rng.uniform(0.3, 0.9) * regions.lids)
    color = blended(color, colors.lips, regions.lips * (0.95 if person.lipstick else 0.75))
    return blended(color, np.array([0.16, 0.03, 0.03]), regions.mouth_inside)


def stubble_amount(
    rng: np.random.Generator, head: Head, person: Person, scalp: np.ndarray
) -> np.ndarray:
    """How dark (N,) short hair makes the skin: of a beard's ground, or of a bald man's scalp."""
    kind = person.beard if person.beard not in ("none", "stubble") else "full"
    shaved = 0.07 if person.male > 0.6 and person.years > 18 else 0.0
    amount = {"none": shaved, "stubble": rng.uniform(0.3, 0.6)}.get(person.beard, 0.55)
    dark = 0.45 if person.hair_color in ("blond", "red", "white") else 1.0
    on_scalp = 0.08 * scalp * (person.hair_style == "bald")
    return amount * dark * beard_density(head.skin, head, kind) + on_scalp


def paint_skin(
    rng: np.random.Generator,
    body: MakeHuman,
    head: Head,
    person: Person,
    colors: Complexion,
    scalp: np.ndarray,
) -> Paint:
    """Paint the skin of a person; `scalp` (N,) says where hair grows."""
    regions = face_regions(body, head)
    color = paint_face(rng, body, regions, person, colors)
    hair = SCALP_COVER.get(person.hair_style, FULL_SCALP_COVER) * scalp
    color = blended(color, 0.55 * colors.hair, hair)
    stubble = stubble_amount(rng, head, person, scalp)
    cloth = cloth_cover(head, person.clothes)
    color = blended(color, colors.cloth, cloth)
    bare = (1 - cloth) * (1 - hair) * (1 - regions.lips)
    x, y, _ = head.skin.T
    freckled = bump(x / 0.55) * bump((y + 0.25) / 0.35) * regions.front
    freckles = 0.75 * freckled * person.freckles
    age_spots = 0.55 * float(ramp(np.array(person.years), 55, 85)) * rng.random() * regions.front
    phase, depth = wrinkle_lines(head, person)
    shifted = phase + rng.uniform(0, math.pi)
    shine = rng.uniform(0.40, 0.58) - 0.06 * regions.nose - 0.12 * regions.lips
    attributes = {
        "tone": np.clip(color, 0, 1),
        "stubble": stubble * (1 - body.lips),
        "spots": np.maximum(freckles, age_spots) * bare * (1 - regions.sockets),
        "wrinkle_phase": shifted,
        "wrinkle_depth": np.clip(depth, 0, 1) * bare * (1 - body.lids),
        "roughness": np.clip(shine + (0.9 - shine) * cloth, 0.15, 1),
    }
    return Paint(attributes, 0.05 * cloth + 0.015 * hair)
