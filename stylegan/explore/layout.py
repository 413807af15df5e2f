"""What stands where on the page, and in which ranges. Every control's id is its name."""

import html
from typing import Any, TypeVar

import gradio as gr

from stylegan.directions import Method
from stylegan.explore.controls import POINTS, SEED, class_names
from stylegan.explore.projecting import MOST_STEPS
from stylegan.explore.scene import Scene, growth_of

LARGEST_SEED = 9999  # of the sliders
REACH = 4.0  # standard deviations either way
METHOD_TITLES: dict[Method, str] = {
    "pca": "Principal components of w: what varies most",
    "sefa": "Factors of the style layers: what they amplify most",
}
SIZES = "2 is 4x4 pixels, 3 is 8x8 and so on; between, the next size fades in."

AnyComponent = TypeVar("AnyComponent", bound=gr.components.Component)


class Layout:
    """The components of one page; made inside of a `gr.Blocks`."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.controls: dict[str, gr.components.Component] = {}  # that settings are made of
        self.sliders: dict[Method, list[str]] = {}  # names of those of directions
        self.points = gr.State(())
        name = html.escape(scene.name)
        gr.HTML(f"<h1>StyleGAN explorer</h1><span>{name}</span>", elem_id="title")
        with gr.Row(elem_id="stage"):
            with gr.Column(min_width=300, scale=5, elem_id="view"):
                self.view()
            with gr.Column(min_width=300, scale=6, elem_id="panel"):
                self.panel()

    def add(self, name: str, kind: type[AnyComponent], *args: Any, **settings: Any) -> None:
        self.controls[name] = kind(*args, elem_id=name, **settings)

    def slide(
        self, name: str, least: float, most: float, value: float, step: float, **settings: Any
    ) -> None:
        """A slider, hidden where there is only one place; the button to reset it sets off nothing
        and is left out."""
        if most <= least:
            most, settings["visible"] = least + step, False
        self.add(name, gr.Slider, least, most, value, step=step, buttons=[], **settings)

    @property
    def moves(self) -> list[gr.components.Component]:
        """The sliders of directions."""
        return [self.controls[name] for names in self.sliders.values() for name in names]

    def view(self) -> None:
        """The picture and what can be done with it."""
        self.picture = gr.HTML(elem_id="picture", padding=False)
        with gr.Row(elem_id="actions"):
            self.save = gr.Button("Save point", variant="primary", min_width=90, elem_id="save")
            self.picture_file = gr.Button("PNG", min_width=60, elem_id="picture_file")
            self.latents_file = gr.Button("Latents", min_width=60, elem_id="latents_file")
        self.latents = gr.Textbox(visible="hidden", elem_id="latents")

    def panel(self) -> None:
        """All controls, by theme."""
        self.add("start", gr.Radio, [SEED, POINTS], value=SEED, label="Start from")
        with gr.Tab("Picture"):
            self.picture_tab()
        with gr.Tab("Mixing", visible=self.scene.generator.config.styles):
            self.mixing_tab()
        with gr.Tab("Directions", visible=bool(self.scene.directions)):
            self.directions_tab()
        with gr.Tab("Saved points"):
            self.points_tab()
        with gr.Tab("Your picture"):
            self.projecting_tab()

    def picture_tab(self) -> None:
        """Seed, class, truncation, growth and noise."""
        config, loaded = self.scene.generator.config, self.scene.loaded
        with gr.Row(equal_height=True):
            self.slide("seed", 0, LARGEST_SEED, 0, 1, label="Seed")
            self.random = gr.Button("Random", size="sm", scale=0, min_width=80, elem_id="random")
        names = [(name, i) for i, name in enumerate(class_names(self.scene))]
        first = 0 if names else None
        self.add("label", gr.Dropdown, names, value=first, label="Class", visible=bool(names))
        meaning = "0 is the average picture, 1 full variety, below 0 the opposite."
        reach = max(1.5, abs(loaded.psi))
        self.slide("psi", -reach, reach, loaded.psi, 0.05, label="Truncation ψ", info=meaning)
        layers = config.num_styles()
        cutoff = layers if loaded.cutoff is None else min(loaded.cutoff, layers)
        self.slide("cutoff", 0, layers, cutoff, 1, label="Layers truncated, from the coarsest")
        most = growth_of(loaded.resolution, loaded.alpha)
        step = 0.25 if loaded.alpha == 1 else 0.01
        self.slide("growth", 2, most, most, step, label="Growth", info=SIZES)
        kinds = [("stored", "const"), ("random", "random"), ("off", "none")]
        self.add("noise", gr.Radio, kinds, value="const", label="Noise", visible=config.noise)
        title = "Seed of random noise"
        self.slide("noise_seed", 0, LARGEST_SEED, 0, 1, label=title, visible=config.noise)

    def mixing_tab(self) -> None:
        """Another seed, for some layers."""
        layers = self.scene.generator.config.num_styles()
        gr.Markdown(
            "Some layers take their styles from another seed: the first ones decide pose and "
            "shape, the last ones colours."
        )
        self.add("mix", gr.Checkbox, False, label="Mix with another seed")
        self.slide("mix_seed", 0, LARGEST_SEED, 1, 1, label="Other seed")
        with gr.Row():
            self.slide("mix_first", 1, layers, layers // 2 + 1, 1, label="First layer")
            self.slide("mix_last", 1, layers, layers, 1, label="Last layer")

    def directions_tab(self) -> None:
        """Sliders for the directions of each method."""
        gr.Markdown("How far to move, in standard deviations.")
        self.reset = gr.Button("All to 0", size="sm", elem_id="reset")
        for method, directions in self.scene.directions.items():
            count = len(directions.vectors)
            self.sliders[method] = [f"{method}_{i + 1}" for i in range(count)]
            with gr.Accordion(METHOD_TITLES[method], elem_classes="directions"), gr.Row():
                for i, name in enumerate(self.sliders[method]):
                    self.slide(name, -REACH, REACH, 0, 0.1, label=f"{i + 1}", min_width=130)

    def points_tab(self) -> None:
        """What was saved, and the way between two of them."""
        gr.Markdown(
            "*Save point* keeps the picture. A click goes to a saved one; the slider walks between "
            "two."
        )
        self.gallery = gr.Gallery(
            show_label=False,
            container=False,
            allow_preview=False,
            interactive=False,
            format="png",
            buttons=[],
            elem_id="gallery",
        )
        with gr.Row():
            self.add("from", gr.Dropdown, [], label="From")
            self.add("to", gr.Dropdown, [], label="To")
        self.slide("between", 0, 1, 0, 0.01, label="Way from one to the other")
        self.remove = gr.Button("Remove the first of the two", size="sm", elem_id="remove")

    def projecting_tab(self) -> None:
        """A picture of the user's own."""
        gr.Markdown(
            "Find the generator's picture that is most like one of yours. It becomes a saved "
            "point. Your picture stays on this computer."
        )
        self.upload = gr.File(label="A picture", height=120, elem_id="upload")
        with gr.Row():
            self.steps = gr.Slider(
                20, MOST_STEPS, 300, step=10, label="Steps", buttons=[], elem_id="steps"
            )
            self.each_layer = gr.Checkbox(
                False,
                label="A w for each layer",
                info="Nearer to your picture, farther from what the generator usually makes.",
                visible=self.scene.generator.config.styles,
                elem_id="each_layer",
            )
        with gr.Row():
            self.project = gr.Button("Project", variant="primary", elem_id="project")
            self.stop = gr.Button("Stop", elem_id="stop")
        self.target = gr.HTML(elem_id="target", padding=False)
