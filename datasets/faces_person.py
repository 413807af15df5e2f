"""The people of the faces recipe: their attributes, drawn from a seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

HAIR_STYLES = ("bald", "buzz", "short", "quiff", "afro", "curly", "bob", "long", "tied")
HAIR_COLORS = ("black", "dark brown", "brown", "chestnut", "blond", "red", "gray", "white")
BEARDS = ("none", "stubble", "moustache", "goatee", "short", "full")
GLASSES = ("none", "thin", "thick", "dark")
EYE_COLORS = ("brown", "hazel", "green", "gray", "blue")
CLOTHES = ("crew", "v-neck", "turtleneck", "shirt")
VALUES = {
    "hair_style": HAIR_STYLES,
    "hair_color": HAIR_COLORS,
    "beard": BEARDS,
    "glasses": GLASSES,
    "eye_color": EYE_COLORS,
    "clothes": CLOTHES,
}

# Relative frequencies of hair styles, for women, men and children in this order of HAIR_STYLES.
WOMEN_STYLES = (0.001, 0.01, 0.08, 0.02, 0.06, 0.17, 0.2, 0.32, 0.135)
MEN_STYLES = (0.05, 0.2, 0.39, 0.14, 0.05, 0.1, 0.02, 0.03, 0.02)
GIRLS_STYLES = (0.0, 0.01, 0.06, 0.0, 0.05, 0.18, 0.22, 0.32, 0.16)
BOYS_STYLES = (0.01, 0.2, 0.55, 0.04, 0.05, 0.13, 0.01, 0.01, 0.0)


@dataclass(frozen=True)
class Person:
    """Everything that somebody could name about a picture."""

    seed: int
    years: float  # age
    male: float  # 0 to 1
    african: float  # the three weights of ancestry add up to 1
    asian: float
    caucasian: float
    weight: float  # -1 thin, 1 fat
    smile: float  # 0 to 1
    mouth_open: float  # 0 to 1
    eyes_closed: float  # below 0: wide open, 1: closed
    brows: float  # -1 lowered, 1 raised
    yaw: float  # degrees; above 0 the face looks to the right of the picture
    pitch: float  # degrees; above 0 the face looks up
    hair_style: str
    hair_color: str
    fringe: bool
    receding: float  # 0 to 1, of the hairline
    beard: str
    glasses: str
    lipstick: bool
    eye_color: str
    freckles: bool
    clothes: str
    light_side: float  # degrees from the camera to the key light; above 0 it shines from the right
    light_height: float  # degrees above the face
    light_hardness: float  # part of the light that is the key light's, 0 to 1
    brightness: float  # of the picture, in stops from the usual one
    place: float  # 0 to 1, among the panoramas


def pick(rng: np.random.Generator, values: Sequence[str], weights: Iterable[float]) -> str:
    """One of the values, drawn with these relative weights."""
    shares = np.array([*weights], float)
    return values[rng.choice(len(values), p=shares / shares.sum())]


def draw_years(rng: np.random.Generator) -> float:
    """An age: a seventh are children, and few are older than 70."""
    group = rng.random()
    if group < 0.14:
        return float(rng.uniform(4, 15))
    if group < 0.72:
        return float(rng.uniform(15, 45))
    return float(45 + 40 * rng.beta(1.1, 1.6))


def draw_hair_color(rng: np.random.Generator, years: float, dark: float) -> str:
    """Light hair is rare where African and Asian ancestry (`dark`) is large; the old are gray."""
    light = max(1 - 1.15 * dark, 0)
    gray = np.clip((years - 45) / 35, 0, 1)
    young = [0.1 + 0.7 * dark, 0.3, 0.3 * light + 0.06, 0.2 * light, 0.28 * light, 0.1 * light]
    shares = np.array(young) / sum(young) * (1 - 0.85 * gray)
    return pick(rng, HAIR_COLORS, [*shares, 0.55 * gray, 0.3 * gray**2])


def draw_hair_style(rng: np.random.Generator, years: float, male: float, african: float) -> str:
    """A hair style; curls are more frequent with African ancestry, bald heads with age."""
    if years < 15:
        shares = np.array(BOYS_STYLES if male > 0.5 else GIRLS_STYLES)
    else:
        shares = np.array(MEN_STYLES if male > 0.5 else WOMEN_STYLES)
    more = {"bald": 1 + 1.5 * (years > 50), "buzz": 1 + african, "curly": 1 + african}
    shares = shares * [more.get(style, 1.0) for style in HAIR_STYLES]
    shares[HAIR_STYLES.index("afro")] *= 6 * african
    return pick(rng, HAIR_STYLES, shares)


def draw_person(seed: int) -> Person:
    """The person of this seed, the same at every call."""
    rng = np.random.default_rng((seed, 0))
    years = draw_years(rng)
    male = float(np.clip(rng.integers(2) + rng.normal(0, 0.12), 0, 1))
    african, asian, caucasian = rng.dirichlet((0.35, 0.35, 0.35))
    dark = african + asian
    grown_man = male > 0.6 and years > 18
    woman = male < 0.4 and years > 16
    smile = float(rng.uniform(0.25, 1)) if rng.random() < 0.66 else float(rng.uniform(-0.15, 0.15))
    opened = rng.random() < (0.7 if smile > 0.4 else 0.1)
    hair_style = draw_hair_style(rng, years, male, african)
    eyes = (0.08 + 9 * dark, 0.2, 0.18, 0.15, 0.4)
    receding = float(rng.beta(1.5, 2)) if grown_man and rng.random() < years / 110 else 0.0
    can_have_fringe = hair_style in ("short", "bob", "long") and receding < 0.2
    return Person(
        seed=seed,
        years=years,
        male=male,
        african=float(african),
        asian=float(asian),
        caucasian=float(caucasian),
        weight=float(np.clip(rng.normal(0, 0.4), -0.8, 0.9)),
        smile=max(smile, 0.0),
        mouth_open=float(rng.uniform(0.1, 0.4)) if opened else 0.0,
        eyes_closed=float(np.clip(rng.normal(-0.12, 0.1), -0.4, 0.2)),
        brows=float(np.clip(rng.normal(0.08, 0.3), -1, 1)),
        yaw=float(np.clip(rng.normal(0, 13), -40, 40)),
        pitch=float(np.clip(rng.normal(-1, 5.5), -16, 16)),
        hair_style=hair_style,
        hair_color=draw_hair_color(rng, years, dark),
        fringe=bool(can_have_fringe and rng.random() < 0.3),
        receding=receding,
        beard=pick(rng, BEARDS, (0.46, 0.2, 0.06, 0.08, 0.12, 0.08)) if grown_man else "none",
        glasses=pick(rng, GLASSES, (0.8, 0.09, 0.07, 0.04)) if years > 6 else "none",
        lipstick=bool(woman and rng.random() < 0.4),
        eye_color=pick(rng, EYE_COLORS, eyes),
        freckles=bool(rng.random() < 0.22 * caucasian),
        clothes=pick(rng, CLOTHES, (0.42, 0.2, 0.14, 0.24)),
        light_side=float(np.clip(rng.normal(0, 32), -75, 75)),
        light_height=float(np.clip(rng.normal(18, 12), -5, 50)),
        light_hardness=float(rng.uniform(0.1, 0.55)),
        brightness=float(np.clip(rng.normal(0, 0.22), -0.6, 0.6)),
        place=float(rng.random()),
    )
