"""The scene of the faces recipe in Blender: skin, eyes, hair, glasses, light and place."""

import base64
import contextlib
import math
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import bpy
import numpy as np
from faces_head import (
    Ball,
    Camera,
    Head,
    MakeHuman,
    Mesh,
    aligned_camera,
    bump,
    ramp,
    shape_head,
    unit,
    view_direction,
)
from faces_person import Person
from faces_skin import (
    CUTS,
    Complexion,
    Surface,
    draw_complexion,
    grow_beard,
    grow_brows,
    grow_hair,
    paint_skin,
    scalp_density,
)
from mathutils import Matrix
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates

SAMPLES = 10  # light paths of a pixel
LIGHT_MAP = 128  # height in pixels of the panoramas that shine
BRIGHTEST = 12.0  # of a panorama's pixels against their mean; suns are left to the key light
AZIMUTHS = 32
IRRADIANCE = 3.6  # of the face, for light skin
KEY_DISTANCE = 12.0
FRAME_POINTS = 40


def z_up(points: np.ndarray) -> np.ndarray:
    """Coordinates of the head (..., 3) in those of Blender, whose z is up."""
    return np.stack([points[..., 0], -points[..., 2], points[..., 1]], axis=-1)


# Materials


def add_node(tree: Any, kind: str, **settings: object) -> Any:
    """A new node; settings are its attributes or, where it has none of that name, inputs."""
    node = tree.nodes.new(kind)
    for name, value in settings.items():
        if hasattr(node, name):
            setattr(node, name, value)
        else:
            node.inputs[name.replace("_", " ")].default_value = value
    return node


def attribute_node(tree: Any, name: str) -> Any:
    return add_node(tree, "ShaderNodeAttribute", attribute_name=name)


def math_node(tree: Any, operation: str, *terms: Any) -> Any:
    """Output of a node that computes; terms are outputs of nodes or numbers."""
    node = add_node(tree, "ShaderNodeMath", operation=operation)
    for socket, term in zip(node.inputs, terms, strict=False):
        if isinstance(term, float | int):
            socket.default_value = term
        else:
            tree.links.new(term, socket)
    return node.outputs[0]


def new_material(name: str) -> tuple[Any, Any, Any]:
    """A material, its node tree and its Principled BSDF."""
    material = bpy.data.materials.new(name)
    material.use_nodes = True
    return material, material.node_tree, material.node_tree.nodes["Principled BSDF"]


def plain_material(
    name: str, color: tuple[float, ...], roughness: float, alpha: float = 1.0
) -> Any:
    material, _, bsdf = new_material(name)
    bsdf.inputs["Base Color"].default_value = (*color, 1)
    bsdf.inputs["Roughness"].default_value = roughness
    bsdf.inputs["Alpha"].default_value = alpha
    return material


def skin_material() -> Any:
    """Skin by the attributes of its vertices: color, roughness, wrinkles, spots, stubble."""
    material, tree, bsdf = new_material("skin")
    link = tree.links.new
    place = add_node(tree, "ShaderNodeTexCoord").outputs["Object"]

    def noise(scale: float, detail: float) -> Any:
        node = add_node(tree, "ShaderNodeTexNoise", Scale=scale, Detail=detail)
        link(place, node.inputs["Vector"])
        return node.outputs["Fac"]

    def darkened(color: Any, amount: Any, tint: tuple[float, float, float]) -> Any:
        mix = add_node(tree, "ShaderNodeMix", data_type="RGBA", blend_type="MULTIPLY")
        link(amount, mix.inputs["Factor"])
        link(color, mix.inputs[6])
        mix.inputs[7].default_value = (*tint, 1)
        return mix.outputs[2]

    blotches = math_node(tree, "MULTIPLY", math_node(tree, "SUBTRACT", noise(5.0, 4.0), 0.35), 0.55)
    color = darkened(attribute_node(tree, "tone").outputs["Color"], blotches, (0.82, 0.66, 0.6))
    phase = attribute_node(tree, "wrinkle_phase").outputs["Fac"]
    wavy = math_node(tree, "ADD", phase, math_node(tree, "MULTIPLY", noise(6.0, 2.0), 5.0))
    line = math_node(tree, "POWER", math_node(tree, "ABSOLUTE", math_node(tree, "SINE", wavy)), 6.0)
    depth = attribute_node(tree, "wrinkle_depth").outputs["Fac"]
    wrinkles = math_node(tree, "MULTIPLY", line, depth)
    color = darkened(color, math_node(tree, "MULTIPLY", wrinkles, 0.5), (0.55, 0.38, 0.33))
    cells = add_node(tree, "ShaderNodeTexVoronoi", Scale=20.0)
    link(place, cells.inputs["Vector"])
    dots = math_node(tree, "LESS_THAN", cells.outputs["Distance"], 0.3)
    spots = math_node(tree, "MULTIPLY", dots, attribute_node(tree, "spots").outputs["Fac"])
    color = darkened(color, spots, (0.66, 0.45, 0.34))
    stubble = math_node(tree, "MULTIPLY", noise(55.0, 2.0), 1.9)
    hairs = math_node(tree, "MULTIPLY", stubble, attribute_node(tree, "stubble").outputs["Fac"])
    color = darkened(color, hairs, (0.12, 0.11, 0.11))
    link(color, bsdf.inputs["Base Color"])

    pores = math_node(tree, "MULTIPLY", noise(60.0, 3.0), 0.12)
    height = math_node(tree, "SUBTRACT", pores, wrinkles)
    relief = add_node(tree, "ShaderNodeBump", Strength=0.5, Distance=0.022)
    link(height, relief.inputs["Height"])
    link(relief.outputs["Normal"], bsdf.inputs["Normal"])
    link(attribute_node(tree, "roughness").outputs["Fac"], bsdf.inputs["Roughness"])
    bsdf.inputs["Subsurface Weight"].default_value = 0.4
    bsdf.inputs["Subsurface Radius"].default_value = (1.0, 0.4, 0.22)
    bsdf.inputs["Subsurface Scale"].default_value = 0.08
    return material


def hair_material(name: str) -> tuple[Any, Any]:
    """Hair whose strands differ in brightness, and the socket of its color."""
    material = bpy.data.materials.new(name)
    material.use_nodes = True
    tree = material.node_tree
    tree.nodes.clear()
    bsdf = add_node(tree, "ShaderNodeBsdfHairPrincipled", parametrization="COLOR")
    bsdf.inputs["Roughness"].default_value = 0.35
    bsdf.inputs["Random Roughness"].default_value = 0.2
    output = add_node(tree, "ShaderNodeOutputMaterial")
    tint = add_node(tree, "ShaderNodeHueSaturation")
    spread = add_node(tree, "ShaderNodeMapRange", To_Min=0.6, To_Max=1.45)
    info = add_node(tree, "ShaderNodeHairInfo")
    tree.links.new(info.outputs["Random"], spread.inputs["Value"])
    tree.links.new(spread.outputs[0], tint.inputs["Value"])
    tree.links.new(tint.outputs[0], bsdf.inputs["Color"])
    tree.links.new(bsdf.outputs[0], output.inputs[0])
    return material, tint.inputs["Color"]


def eye_material() -> Any:
    material, tree, bsdf = new_material("eye")
    tree.links.new(attribute_node(tree, "tone").outputs["Color"], bsdf.inputs["Base Color"])
    bsdf.inputs["Roughness"].default_value = 0.3
    bsdf.inputs["Coat Weight"].default_value = 1.0
    bsdf.inputs["Coat Roughness"].default_value = 0.03
    return material


# Objects


class Part:
    """A mesh whose vertices are set anew for every head."""

    def __init__(
        self, name: str, polygons: list[list[int]], count: int, material: Any, level: int
    ) -> None:
        self.mesh = bpy.data.meshes.new(name)
        self.mesh.from_pydata(np.zeros((count, 3)).tolist(), [], polygons)
        self.mesh.polygons.foreach_set("use_smooth", [True] * len(polygons))
        self.mesh.materials.append(material)
        scene_object = bpy.data.objects.new(name, self.mesh)
        bpy.context.scene.collection.objects.link(scene_object)
        if level:
            subdivision = scene_object.modifiers.new("subdivision", "SUBSURF")
            subdivision.levels = subdivision.render_levels = level

    def place(self, points: np.ndarray) -> None:
        self.mesh.vertices.foreach_set("co", z_up(points).astype(np.float32).ravel())
        self.mesh.update()

    def paint(self, name: str, values: np.ndarray) -> None:
        """Set an attribute of the vertices: colors (N, 3) or numbers (N,)."""
        kind, field = ("FLOAT_COLOR", "color") if values.ndim == 2 else ("FLOAT", "value")
        attributes = self.mesh.attributes
        layer = attributes.get(name) or attributes.new(name, kind, "POINT")
        if values.ndim == 2:
            values = np.column_stack([values, np.ones(len(values))])
        layer.data.foreach_set(field, values.astype(np.float32).ravel())


def remove_object(name: str, library: Any) -> None:
    scene_object = bpy.data.objects.get(name)
    if scene_object:
        data = scene_object.data
        bpy.data.objects.remove(scene_object)
        library.remove(data)


def place_strands(name: str, strands: np.ndarray, radii: np.ndarray, material: Any) -> None:
    """Replace the curves of this name: strands (K, P, 3) with radii (P,)."""
    remove_object(name, bpy.data.hair_curves)
    count, points, _ = strands.shape
    if not count:
        return
    curves = bpy.data.hair_curves.new(name)
    curves.add_curves([points] * count)
    positions = z_up(strands).astype(np.float32).ravel()
    curves.attributes["position"].data.foreach_set("vector", positions)
    layer = curves.attributes.get("radius") or curves.attributes.new("radius", "FLOAT", "POINT")
    layer.data.foreach_set("value", np.tile(radii, count).astype(np.float32))
    curves.materials.append(material)
    scene_object = bpy.data.objects.new(name, curves)
    bpy.context.scene.collection.objects.link(scene_object)


def place_polygons(name: str, rings: list[np.ndarray], material: Any) -> None:
    """Replace the mesh of this name: each ring (P, 3) is a polygon."""
    remove_object(name, bpy.data.meshes)
    if not rings:
        return
    mesh = bpy.data.meshes.new(name)
    ends = np.cumsum([0, *(len(ring) for ring in rings)]).tolist()
    polygons = [list(range(start, end)) for start, end in pairwise(ends)]
    mesh.from_pydata(z_up(np.concatenate(rings)).tolist(), [], polygons)
    mesh.materials.append(material)
    scene_object = bpy.data.objects.new(name, mesh)
    bpy.context.scene.collection.objects.link(scene_object)


# Eyes


def ball_mesh() -> tuple[np.ndarray, list[list[int]]]:
    """Vertices and polygons of a unit sphere around +z, finest where the iris is."""
    rings = np.concatenate([np.linspace(0, 0.7, 36), np.linspace(0.75, math.pi, 16)])
    columns = 40
    down, around = np.meshgrid(rings, np.arange(columns) * 2 * math.pi / columns, indexing="ij")
    parts = np.sin(down) * np.cos(around), np.sin(down) * np.sin(around), np.cos(down)
    points = np.stack(parts, axis=-1).reshape(-1, 3)
    polygons = []
    for ring in range(len(rings) - 1):
        for column in range(columns):
            following = (column + 1) % columns
            low, high = ring * columns, (ring + 1) * columns
            polygons.append([low + column, low + following, high + following, high + column])
    return points, polygons


def eye_colors(points: np.ndarray, iris: np.ndarray) -> np.ndarray:
    """Colors of a unit sphere (N, 3) that looks along +z: white, iris with a dark rim, pupil."""
    angle = np.arccos(np.clip(points[:, 2], -1, 1))
    around = np.arctan2(points[:, 1], points[:, 0])
    spokes = 1 + 0.25 * np.sin(9 * around) * np.sin(23 * around)
    white = np.array([0.72, 0.68, 0.65]) * (1 - 0.25 * ramp(angle, 0.6, 1.2))[:, None]
    within = np.clip((0.47 - angle) / 0.03, 0, 1)[:, None]
    color = white * (1 - within) + iris * spokes[:, None] * within
    color *= 1 - 0.65 * bump((angle - 0.44) / 0.05)[:, None]
    pupil = np.clip((0.20 - angle) / 0.03, 0, 1)[:, None]
    return np.clip(color * (1 - pupil) + 0.003 * pupil, 0, 1)


def looking(points: np.ndarray, ball: Ball, gaze: np.ndarray) -> np.ndarray:
    """A unit sphere's points, moved to the ball and turned to look along `gaze`."""
    side = unit(np.cross([0.0, 1.0, 0.0], gaze))
    axes = np.stack([side, np.cross(gaze, side), gaze])
    return points * ball.radius @ axes + ball.center


# Glasses


def glasses_curves(rng: np.random.Generator, body: MakeHuman, head: Head) -> list[np.ndarray]:
    """Curves (FRAME_POINTS, 3): the rims of the left and right lens, the temples, the bridge."""
    wide, high, power = rng.uniform(1.25, 1.5), rng.uniform(0.85, 1.2), rng.uniform(2, 4)
    turn = np.linspace(0, 2 * math.pi, FRAME_POINTS)
    cos = np.sign(np.cos(turn)) * np.abs(np.cos(turn)) ** (2 / power)
    sin = np.sign(np.sin(turn)) * np.abs(np.sin(turn)) ** (2 / power)
    flat = head.skin[:, :2]
    depths = [
        head.skin[np.linalg.norm(flat - ball.center[:2], axis=1) < 1.6 * ball.radius, 2].max()
        for ball in head.eyes
    ]
    t = np.linspace(0, 1, FRAME_POINTS)[:, None]
    ears = head.skin[body.ears > 0.5]
    rims, temples = [], []
    for ball in head.eyes:
        side = np.sign(ball.center[0])
        x = ball.center[0] + ball.radius * wide * cos
        y = ball.center[1] + ball.radius * (high * sin - 0.12)
        rim = np.stack([x, y, max(depths) + 0.02 - 0.25 * x**2], axis=1)
        hinge = rim[np.argmax(x * side)] + [0, 0.3 * ball.radius * high, 0]
        at_ear = np.array([side * np.abs(ears[:, 0]).max(), hinge[1], ears[:, 2].mean()])
        rims.append(rim)
        temples.append(hinge + t * (at_ear - hinge))
    left, right = rims
    start, end = left[np.argmin(left[:, 0])], right[np.argmax(right[:, 0])]
    bridge = start + t * (end - start) + np.array([0, 0.12, 0.05]) * t * (1 - t)
    return [*rims, *temples, bridge]


# Light and place


@dataclass(frozen=True)
class Panorama:
    """A place: its picture, and the light that it throws on a wall."""

    pixels: np.ndarray  # (H, W, 3), the lowest row first
    light: Any  # Blender's image of it, small and without suns
    walls: np.ndarray  # (AZIMUTHS, 3): irradiance of a wall that faces each azimuth


def load_pixels(path: Path) -> np.ndarray:
    """The pixels (H, W, 3) of an EXR file, the lowest row first."""
    picture = bpy.data.images.load(str(path))
    width, height = picture.size
    values = np.empty(width * height * picture.channels, np.float32)
    picture.pixels.foreach_get(values)
    bpy.data.images.remove(picture)
    return values.reshape(height, width, -1)[:, :, :3]


def new_image(name: str, pixels: np.ndarray) -> Any:
    height, width = pixels.shape[:2]
    picture = bpy.data.images.new(name, width, height, float_buffer=True, is_data=True)
    set_pixels(picture, pixels)
    return picture


def set_pixels(picture: Any, pixels: np.ndarray) -> None:
    alpha = np.ones((*pixels.shape[:2], 1))
    values = np.concatenate([pixels, alpha], axis=2).astype(np.float32)
    picture.pixels.foreach_set(values.ravel())
    picture.update()


def wall_irradiance(pixels: np.ndarray) -> np.ndarray:
    """Irradiance (AZIMUTHS, 3) of vertical walls around the middle of a panorama."""
    height, width = pixels.shape[:2]
    elevation = ((np.arange(height) + 0.5) / height - 0.5) * math.pi
    azimuth = (0.5 - (np.arange(width) + 0.5) / width) * 2 * math.pi
    solid = np.cos(elevation) * (math.pi / height) * (2 * math.pi / width)
    rows = (pixels * (solid * np.cos(elevation))[:, None, None]).sum(axis=0)
    facing = np.arange(AZIMUTHS) / AZIMUTHS * 2 * math.pi
    return np.clip(np.cos(azimuth - facing[:, None]), 0, None) @ rows


def read_panorama(path: Path) -> Panorama:
    pixels = load_pixels(path)
    pixels = pixels / pixels.mean()
    reduced = pixels.shape[0] // LIGHT_MAP
    small = pixels.reshape(LIGHT_MAP, reduced, 2 * LIGHT_MAP, reduced, 3).mean(axis=(1, 3))
    gray = small.mean(axis=2, keepdims=True)
    small = gray + 0.7 * (small - gray)
    small = np.clip(small * np.minimum(1, BRIGHTEST / np.maximum(gray, 1e-6)), 0, None)
    return Panorama(pixels, new_image(path.stem, small), wall_irradiance(small))


def packed_panoramas(package: Path, folder: Path) -> list[Path]:
    """Unpack the panoramas of the npm package @pmndrs/assets, base64 in JavaScript, to a folder."""
    paths = []
    with tarfile.open(package) as archive:
        for member in archive.getmembers():
            name = re.fullmatch(r"package/hdri/(\w+\.exr)\.js", member.name)
            file = archive.extractfile(member) if name else None
            if name and file:
                encoded = re.search(rb"base64,([A-Za-z0-9+/=]+)", file.read())
                if not encoded:
                    raise ValueError(
                        f"{package}: {member.name} holds no base64; is it version 1.7.0?"
                    )
                path = folder / f"npm-{name[1]}"
                path.write_bytes(base64.b64decode(encoded[1]))
                paths.append(path)
    return sorted(paths)


def backdrop(
    rng: np.random.Generator, panorama: Panorama, azimuth: float, gains: np.ndarray, size: int
) -> np.ndarray:
    """What is behind the head (size, size, 3), out of focus."""
    height, width = panorama.pixels.shape[:2]
    view = math.radians(rng.uniform(35, 70))
    center = (0.5 - azimuth / (2 * math.pi)) * width
    middle = (0.5 + math.radians(rng.uniform(-6, 14)) / math.pi) * height
    offsets = (np.arange(size) + 0.5) / size - 0.5
    rows = np.clip(middle + offsets * view / math.pi * height, 0, height - 1)
    columns = center + offsets * view / (2 * math.pi) * width
    grid = np.meshgrid(rows, columns, indexing="ij")
    channels = [
        map_coordinates(panorama.pixels[:, :, c], grid, order=1, mode="grid-wrap") for c in range(3)
    ]
    picture = np.stack(channels, axis=2) * np.sqrt(gains)
    bright = picture.mean(axis=2, keepdims=True)
    picture = picture * np.minimum(1, 6 * np.median(bright) / np.maximum(bright, 1e-6))
    blur = size * rng.uniform(0.02, 0.06)
    picture = gaussian_filter(picture, (blur, blur, 0), mode="nearest")
    level = math.exp(rng.normal(math.log(0.25), 0.6))
    picture = picture * level / picture.mean()
    gray = picture.mean(axis=2, keepdims=True)
    return np.clip(gray + 1.1 * (picture - gray), 0, 1.0)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what Blender writes to the standard output from it."""
    sys.stdout.flush()
    saved = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


class Studio:
    """A scene in which one person after the other is photographed."""

    def __init__(self, wheel: Path, assets: Path, size: int, threads: int) -> None:
        self.size = size
        for scene_object in list(bpy.data.objects):
            bpy.data.objects.remove(scene_object)
        self.body = MakeHuman(wheel)
        self._make_parts()
        self._make_world(assets)
        self._make_camera(threads)

    def _make_parts(self) -> None:
        def part(name: str, mesh: Mesh, material: Any, level: int) -> Part:
            return Part(name, mesh.polygons, len(mesh.indices), material, level)

        body = self.body
        self.skin = part("skin", body.skin, skin_material(), 1 if self.size <= 64 else 2)
        self.teeth = part("teeth", body.teeth, plain_material("teeth", (0.74, 0.69, 0.58), 0.25), 1)
        self.tongue = part(
            "tongue", body.tongue, plain_material("tongue", (0.40, 0.10, 0.09), 0.4), 1
        )
        lashes = plain_material("lashes", (0.02, 0.015, 0.012), 0.6, alpha=0.6)
        self.lashes = part("lashes", body.lashes, lashes, 0)
        self.ball, polygons = ball_mesh()
        material = eye_material()
        count = len(self.ball)
        self.balls = [Part(f"eye {side}", polygons, count, material, 0) for side in "lr"]
        self.hair, self.hair_color = hair_material("hair")
        self.brow, self.brow_color = hair_material("brow")
        self.frame = plain_material("frame", (0.01, 0.01, 0.012), 0.25)
        self.lens = plain_material("lens", (0.008, 0.008, 0.01), 0.05, alpha=0.93)

    def _make_world(self, assets: Path) -> None:
        """Light from a panorama, a picture behind the head, and a key light."""
        with tempfile.TemporaryDirectory() as folder:
            own = Path(bpy.utils.system_resource("DATAFILES", path="studiolights/world"))
            paths = [*sorted(own.glob("*.exr")), *packed_panoramas(assets, Path(folder))]
            self.panoramas = [read_panorama(path) for path in paths]
        world = bpy.data.worlds.new("world")
        bpy.context.scene.world = world
        world.use_nodes = True
        world.cycles.sampling_method = "MANUAL"
        world.cycles.sample_map_resolution = 256  # else the map costs more time than the picture
        tree = world.node_tree
        tree.nodes.clear()
        link = tree.links.new
        coordinates = add_node(tree, "ShaderNodeTexCoord")
        self.turn = add_node(tree, "ShaderNodeMapping")
        self.sky = add_node(tree, "ShaderNodeTexEnvironment")
        self.gains = add_node(tree, "ShaderNodeMix", data_type="RGBA", blend_type="MULTIPLY")
        self.gains.inputs["Factor"].default_value = 1.0
        self.shine = add_node(tree, "ShaderNodeBackground")
        self.picture = new_image("backdrop", np.zeros((self.size, self.size, 3)))
        behind = add_node(tree, "ShaderNodeTexImage", image=self.picture, interpolation="Cubic")
        behind.extension = "EXTEND"
        seen = add_node(tree, "ShaderNodeBackground")
        mix = add_node(tree, "ShaderNodeMixShader")
        output = add_node(tree, "ShaderNodeOutputWorld")
        link(coordinates.outputs["Generated"], self.turn.inputs["Vector"])
        link(self.turn.outputs[0], self.sky.inputs["Vector"])
        link(self.sky.outputs["Color"], self.gains.inputs[6])
        link(self.gains.outputs[2], self.shine.inputs["Color"])
        link(coordinates.outputs["Window"], behind.inputs["Vector"])
        link(behind.outputs["Color"], seen.inputs["Color"])
        link(add_node(tree, "ShaderNodeLightPath").outputs["Is Camera Ray"], mix.inputs[0])
        link(self.shine.outputs[0], mix.inputs[1])
        link(seen.outputs[0], mix.inputs[2])
        link(mix.outputs[0], output.inputs[0])
        self.key = bpy.data.lights.new("key", "AREA")
        self.key_object = bpy.data.objects.new("key", self.key)
        bpy.context.scene.collection.objects.link(self.key_object)

    def _make_camera(self, threads: int) -> None:
        scene = bpy.context.scene
        self.camera = bpy.data.cameras.new("camera")
        self.camera.lens_unit = "FOV"
        self.camera_object = bpy.data.objects.new("camera", self.camera)
        scene.collection.objects.link(self.camera_object)
        scene.camera = self.camera_object
        render = scene.render
        render.engine = "CYCLES"
        render.resolution_x = render.resolution_y = self.size
        render.hair_type = "STRIP"
        scene.cycles.filter_width = 1.1  # pixels; the usual 1.5 is soft at 64 pixels
        render.threads_mode = "FIXED"
        render.threads = threads
        render.image_settings.file_format = "PNG"
        render.image_settings.color_mode = "RGB"
        render.image_settings.compression = 0
        scene.view_settings.view_transform = "Khronos PBR Neutral"
        cycles = scene.cycles
        cycles.device = "CPU"
        cycles.samples = SAMPLES
        cycles.use_adaptive_sampling = False
        cycles.use_denoising = True
        cycles.denoiser = "OPENIMAGEDENOISE"
        cycles.denoising_prefilter = "FAST"
        cycles.max_bounces = 6

    def photograph(self, person: Person) -> Image.Image:
        """The picture of a person."""
        rng = np.random.default_rng((person.seed, 1))
        head = shape_head(self.body, person, rng)
        colors = draw_complexion(rng, person)
        self._place_person(rng, head, person, colors)
        camera = self._place_camera(rng, head, person)
        self._place_eyes(rng, head, camera, colors)
        self._place_light(rng, head, person, camera, colors)
        scene = bpy.context.scene
        scene.cycles.seed = person.seed
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "picture.png")
            scene.render.filepath = str(path)
            with quiet():
                bpy.ops.render.render(write_still=True)
            return Image.open(path).convert("RGB")

    def _place_person(
        self, rng: np.random.Generator, head: Head, person: Person, colors: Complexion
    ) -> None:
        body = self.body
        ragged = rng.uniform(0, 2 * math.pi, 4)

        def density(points: np.ndarray) -> np.ndarray:
            return scalp_density(points, head, person.receding, ragged)

        surface = Surface(body, head)
        scalp = density(head.skin) * (body.ears < 0.3)
        paint = paint_skin(rng, body, head, person, colors, scalp)
        for name, values in paint.attributes.items():
            self.skin.paint(name, values)
        self.skin.place(head.skin + head.normals * paint.thickness[:, None])
        for part, mesh in (
            (self.teeth, body.teeth),
            (self.tongue, body.tongue),
            (self.lashes, body.lashes),
        ):
            part.place(head.vertices[mesh.indices])
        self.hair_color.default_value = (*colors.hair, 1)
        faded = 0.75 if person.hair_color in ("blond", "red") else 1.0
        brow = colors.hair * rng.uniform(0.6, 1.0) * faded + 0.12 * colors.skin
        if person.hair_color in ("gray", "white"):
            brow = colors.hair * rng.uniform(0.3, 0.8)
        self.brow_color.default_value = (*np.clip(brow, 0, 1), 1)
        hair = grow_hair(rng, body, surface, head, person, density)
        cut = CUTS.get(person.hair_style, CUTS["short"])
        taper = np.linspace(1, 0.4, hair.shape[1])
        place_strands("hair", hair, cut.radius * taper, self.hair)
        brows = grow_brows(rng, body, surface, head, person)
        place_strands("brows", brows, 0.0048 * np.array([1, 1, 0.8, 0.4]), self.brow)
        beard = grow_beard(rng, body, surface, head, person.beard)
        place_strands("beard", beard, 0.0095 * np.linspace(1, 0.4, beard.shape[1]), self.hair)
        self._place_glasses(rng, head, person)

    def _place_glasses(self, rng: np.random.Generator, head: Head, person: Person) -> None:
        curves = glasses_curves(rng, self.body, head) if person.glasses != "none" else []
        radius = {"thin": 0.011, "thick": 0.026, "dark": 0.024}.get(person.glasses, 0.0)
        golden = person.glasses == "thin" and rng.random() < 0.5
        bsdf = self.frame.node_tree.nodes["Principled BSDF"]
        color = (0.5, 0.4, 0.25) if golden else (0.012, 0.010, 0.010)
        if person.glasses == "thick" and rng.random() < 0.4:
            color = (0.10, 0.03, 0.012)
        bsdf.inputs["Base Color"].default_value = (*color, 1)
        bsdf.inputs["Metallic"].default_value = float(golden)
        strands = np.stack(curves) if curves else np.zeros((0, FRAME_POINTS, 3))
        place_strands("frame", strands, np.full(FRAME_POINTS, radius), self.frame)
        place_polygons("lenses", curves[:2] if person.glasses == "dark" else [], self.lens)

    def _place_camera(self, rng: np.random.Generator, head: Head, person: Person) -> Camera:
        jitter = rng.normal(0, 1, 4) * [0.008, 0.008, 0.015, 0.02]
        distance = rng.uniform(9, 18)
        camera = aligned_camera(head.landmarks(), person.yaw, person.pitch, distance, jitter)
        rotation = z_up(camera.axes.T).T
        matrix = np.eye(4)
        matrix[:3, :3] = rotation
        matrix[:3, 3] = z_up(camera.position)
        self.camera_object.matrix_world = Matrix(matrix.tolist())
        self.camera.angle = 2 * math.atan(camera.half_width)
        self.camera.shift_x, self.camera.shift_y = camera.shift.tolist()
        return camera

    def _place_eyes(
        self, rng: np.random.Generator, head: Head, camera: Camera, colors: Complexion
    ) -> None:
        to_camera = unit(camera.position)
        straight = rng.uniform(0.55, 1.0)  # 1: into the camera
        gaze = unit(to_camera * straight + np.array([0, 0, 1 - straight]) + rng.normal(0, 0.03, 3))
        for ball, part in zip(head.eyes, self.balls, strict=True):
            part.place(looking(self.ball, ball, gaze))
            part.paint("tone", eye_colors(self.ball, colors.iris))

    def _place_light(
        self,
        rng: np.random.Generator,
        head: Head,
        person: Person,
        camera: Camera,
        colors: Complexion,
    ) -> None:
        """Light the face alike in every place: partly by the place, partly by the key light."""
        panorama = self.panoramas[int(person.place * len(self.panoramas))]
        brightness = panorama.walls.sum(axis=1)
        facing = int(rng.choice(AZIMUTHS, p=brightness**2 / (brightness**2).sum()))
        azimuth = facing / AZIMUTHS * 2 * math.pi
        wall = panorama.walls[facing]
        gains = (wall.mean() / wall) ** 0.8
        albedo = float(colors.skin.mean())
        wanted = IRRADIANCE * (0.5 / albedo) ** 0.45 * 2**person.brightness
        face = unit(view_direction(person.yaw, person.pitch) + np.array([0.0, 0.0, 1.0]))
        to_face = z_up(face)
        self.sky.image = panorama.light
        turn = azimuth - math.atan2(to_face[1], to_face[0])
        self.turn.inputs["Rotation"].default_value = (0, 0, turn)
        self.gains.inputs[7].default_value = (*gains, 1)
        share = 1 - person.light_hardness
        self.shine.inputs["Strength"].default_value = wanted * share / float((wall * gains).mean())
        light = view_direction(person.yaw - person.light_side, person.pitch - person.light_height)
        position = light * KEY_DISTANCE
        back = z_up(light)
        side = unit(np.cross([0.0, 0.0, 1.0], back))
        matrix = np.eye(4)
        matrix[:3, :3] = np.stack([side, np.cross(back, side), back], axis=1)
        matrix[:3, 3] = z_up(position)
        self.key_object.matrix_world = Matrix(matrix.tolist())
        self.key.size = float(rng.uniform(3, 9))
        toward = max(float(face @ light), 0.35)
        self.key.energy = wanted * person.light_hardness / toward * math.pi * KEY_DISTANCE**2
        warmth = rng.normal(0.03, 0.05)
        self.key.color = (1 + warmth, 1.0, 1 - 1.4 * warmth)
        behind = azimuth + math.pi
        set_pixels(self.picture, backdrop(rng, panorama, behind, gains, self.size))
