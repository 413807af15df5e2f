"use strict";
// Builds the controls that the engine describes. The engine generates images and checks all values.

const LARGEST_FILE = 20e6; // bytes
const SEEDS = 12; // seeds to choose from at a time

const $ = (id) => document.getElementById(id);
const SEED_SECONDS = 2; // from seed to seed of a walk
const LONGEST_STEP = 0.1; // of the way between seeds, where images take long
const LINK_DELAY = 300; // milliseconds until the address holds a change
const BAR_DELAY = 500; // milliseconds until a bar is shown

const controls = {}; // by name: functions get() and set(value), and the first value
let scene = null; // what the engine describes
let nextSeed = 0; // the next seed to choose from
let search = null; // an AbortController during a search

function made(kind, parent, properties = {}) {
  const element = Object.assign(document.createElement(kind), properties);
  parent.append(element);
  return element;
}

function say(message) {
  $("message").textContent = message;
  $("picture").classList.toggle("stale", message !== "");
  if (message) walking = false;
}

// Runs an action of the user and shows its error as a message.
async function politely(action) {
  try {
    await action();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}

function slider(box, { name, label, low, high, value, step, most }, moved) {
  box.classList.add("slider");
  box.hidden = high <= low;
  made("label", box, { textContent: label, htmlFor: `${name}_number` });
  const number = made("input", box, { type: "number", id: `${name}_number`, min: low, max: most ?? high, step, value });
  const range = made("input", box, { type: "range", min: low, max: high, step, value });
  range.setAttribute("aria-label", label);
  range.addEventListener("input", () => { number.value = range.value; moved(); });
  number.addEventListener("input", () => { range.value = number.value; moved(); });
  return {
    get: () => (number.value === "" ? null : Number(number.value)),
    set: (to) => { // a link may hold anything
      const asked = String(to).trim() === "" ? NaN : Number(to);
      const sound = asked >= low && asked <= (most ?? high) && (step % 1 !== 0 || asked % 1 === 0);
      number.value = range.value = sound ? asked : value;
    },
  };
}

function menu(box, { label, options, value }, moved) {
  box.hidden = options.length < 2;
  const select = made("select", made("label", box, { textContent: `${label} ` }));
  for (const [key, text] of options) made("option", select, { value: key, textContent: text });
  select.value = value;
  select.addEventListener("input", moved);
  return { get: () => select.value, set: (to) => { select.value = options.some(([key]) => String(key) === String(to)) ? to : value; } };
}

function layers(box, { label, count }, moved) {
  box.classList.add("row");
  box.append(label);
  for (let i = 0; i < count; i++) {
    const tick = made("label", box);
    made("input", tick, { type: "checkbox", value: i }).addEventListener("input", moved);
    tick.append(i);
  }
  const ticks = [...box.querySelectorAll("input")];
  return {
    get: () => ticks.filter((tick) => tick.checked).map((tick) => Number(tick.value)),
    set: (to) => {
      const ticked = String(to).split(",");
      ticks.forEach((tick) => { tick.checked = ticked.includes(tick.value); });
    },
  };
}

const KINDS = { Slider: slider, Menu: menu, Layers: layers };

function build() {
  const { name, sections, weights } = scene;
  $("name").textContent = name;
  $("weights").textContent = weights && `Weights from ${weights}`;
  document.title = `${name} - StyleGAN explorer`;
  for (const [section, members] of Object.entries(sections)) {
    const parent = $(section === "start" ? "start" : `of_${section}`);
    for (const one of members) {
      const box = made("div", parent, { id: one.name, className: "control", title: one.tip });
      controls[one.name] = { ...KINDS[one.kind](box, one, () => moved(section, one.name)), first: one.value, section };
    }
  }
  $("of_edits").parentElement.hidden = sections.edits.length <= 2;
  $("of_mixing").parentElement.hidden = sections.mixing[1].count <= 1;
  for (const one of document.querySelectorAll(".project")) one.hidden = !sections.own.length;
  for (const one of document.querySelectorAll(".no_project")) one.hidden = sections.own.length > 0;
  document.body.classList.add("built");
}

const values = () => Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.get()]));

function moved(section, name) {
  const ofSeed = ["picture", "plane", "mixing"].includes(section) && !name.startsWith("noise");
  if (ofSeed) controls.start.set("seed");
  if (name === "noise_seed") controls.noise.set("random");
  if (name === "label" && nextSeed) {
    nextSeed -= SEEDS;
    politely(showSeeds); // the same seeds of this class
  }
  placed();
  if (section !== "own") draw();
}

// Moves the dot of the plane to its position, and labels the seeds at the sides.
function placed() {
  const at = (name, sign) => `${50 + (sign * 50 * controls[name].get()) / scene.plane}%`;
  Object.assign($("plane_dot").style, { left: at("plane_x", 1), top: at("plane_y", -1) });
  $("plane_right").textContent = controls.plane_a.get();
  $("plane_top").textContent = controls.plane_b.get();
}

function dragged(event) {
  if (event.type !== "pointerdown" && !event.buttons) return;
  if (event.type === "pointerdown") $("plane").setPointerCapture(event.pointerId);
  const { left, top, width, height } = $("plane").getBoundingClientRect();
  const within = (x) => (scene.plane * Math.max(-1, Math.min(1, x))).toFixed(2);
  controls.plane_x.set(within((2 * (event.clientX - left)) / width - 1));
  controls.plane_y.set(within(1 - (2 * (event.clientY - top)) / height));
  moved("plane", "plane_x");
}

function fill(figure, source, caption) {
  Object.assign(figure.querySelector("img"), { src: source, alt: caption });
  figure.querySelector("figcaption").textContent = caption;
}

// Describes how the image is made, with edits in the syntax of `generate`.
function captionOf(given) {
  const label = scene.sections.picture.find(({ name }) => name === "label");
  const aside = given.plane_x || given.plane_y ? ` toward ${given.plane_a}, ${given.plane_b}` : "";
  const parts = given.start === "own" ? ["your image"] : [`seed ${given.seed}${aside}`, `ψ ${given.psi}`];
  if (label && given.start !== "own") parts.push(label.options.find(([value]) => value === given.label)[1]);
  if (given.mix_layers.length) parts.push(`layers ${given.mix_layers} of seed ${given.mix_seed}`);
  const [first, last] = [given.edit_first, given.edit_last].sort((a, b) => a - b);
  const chosen = last - first + 1 < scene.layers ? `@${first}-${last}` : "";
  const edits = scene.sections.edits.slice(2).filter(({ name }) => given[name]).map(({ name }) => {
    const [, direction, own = ""] = /^(.*?)(@[\d-]+)?$/.exec(name);
    return `--edit ${direction}=${given[name] > 0 ? "+" : ""}${given[name]}${chosen || own}`;
  });
  return [...parts, ...edits].join(" · ");
}

const fileOf = ({ start, seed }) => (start === "own" ? "own" : `seed${String(seed).padStart(4, "0")}`);

let drawing = false, again = false;
let shown = ""; // name for the file of the image that is shown

// Shows the image that the controls specify; meanwhile, only the last request waits.
async function draw() {
  again = true;
  if (drawing) return;
  drawing = true;
  while (again) {
    again = false;
    await politely(async () => {
      const given = values();
      const { picture } = await withBar((show) => ask("picture", given, show));
      fill($("picture"), picture, captionOf(given));
      shown = fileOf(given);
      say("");
      keepInLink();
    });
  }
  drawing = false;
}

// Shows a bar while `make` takes long, with the fraction that is loaded.
async function withBar(make) {
  const show = ({ loaded }) => {
    if (loaded < 1) Object.assign($("bar"), { hidden: false, value: loaded });
    else $("bar").removeAttribute("value"); // the time for the rest is unknown
  };
  const timer = setTimeout(() => { $("bar").hidden = false; }, BAR_DELAY);
  try {
    return await make(show);
  } finally {
    clearTimeout(timer);
    $("bar").hidden = true;
    $("bar").removeAttribute("value");
  }
}

const inLink = ([, { section }]) => !["start", "own"].includes(section);
let linking = 0;

// Writes the values that differ from the first ones into the address: a link to this image.
function keepInLink() {
  clearTimeout(linking);
  linking = setTimeout(() => {
    const changed = Object.entries(controls).filter(inLink).filter(([, one]) => String(one.get()) !== String(one.first));
    const state = new URLSearchParams(changed.map(([name, one]) => [name, one.get()]));
    history.replaceState(null, "", `#${state}`);
  }, LINK_DELAY);
}

function readLink() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const [name, one] of Object.entries(controls).filter(inLink)) one.set(state.get(name) ?? one.first);
  placed();
}

let walking = false;
let walks = 0; // number of the last walk

// Moves in w from seed to seed, until it is called again.
async function walk() {
  walking = !walking;
  $("walk").textContent = walking ? "Stop" : "Walk";
  if (!walking) return;
  const mine = ++walks;
  let last = performance.now();
  let way = 1; // fraction of the way to the next seed
  controls.plane_a.set(controls.seed.get());
  controls.plane_y.set(0);
  while (walking && mine === walks) {
    const now = await new Promise(requestAnimationFrame);
    if (!walking || mine !== walks) break;
    way += Math.min(LONGEST_STEP, (now - last) / 1000 / SEED_SECONDS);
    last = now;
    if (way >= 1) {
      way = 0;
      controls.seed.set(controls.plane_a.get());
      controls.plane_a.set((controls.seed.get() + 1) % 2 ** 32);
    }
    controls.plane_x.set(way.toFixed(3));
    controls.start.set("seed");
    placed();
    await draw();
  }
  if (mine === walks) $("walk").textContent = "Walk";
}

let choosing = 0;

// Shows images of some seeds to choose from, with the current truncation, class and noise.
async function showSeeds() {
  const mine = ++choosing;
  $("seeds").replaceChildren();
  const given = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.first]));
  for (const name of ["psi", "label", "noise"]) if (controls[name]) given[name] = controls[name].get();
  nextSeed += SEEDS;
  const buttons = Array.from({ length: SEEDS }, (_, i) => seedButton(nextSeed - SEEDS + i));
  for (const { value, image } of buttons) {
    const { picture } = await ask("picture", { ...given, seed: value });
    if (mine !== choosing) return;
    Object.assign(image, { src: picture, alt: `seed ${value}` });
  }
}

// Adds a button that chooses a seed; its place is there before its image.
function seedButton(value) {
  const button = made("button", $("seeds"), { title: `seed ${value}` });
  const image = made("img", button, { alt: "" });
  made("span", button, { textContent: value });
  button.addEventListener("click", () => choose(value));
  return { value, image };
}

// Shows the image of a seed itself, outside of a walk and in the middle of the plane.
function choose(seed) {
  walking = false;
  controls.seed.set(seed);
  ["plane_x", "plane_y"].forEach((name) => controls[name].set(0));
  moved("picture", "seed");
}

async function encoded(file) {
  if (!file) throw new Error("choose a file first");
  if (file.size > LARGEST_FILE) throw new Error(`${file.name}: a file must have at most ${LARGEST_FILE / 1e6} MB`);
  const reader = new FileReader();
  await new Promise((resolve, reject) => {
    Object.assign(reader, { onload: resolve, onerror: () => reject(new Error(`${file.name} cannot be read`)) });
    reader.readAsDataURL(file);
  });
  return { name: file.name, content: reader.result.split(",")[1] ?? "" };
}

async function project() {
  if (search) return;
  search = new AbortController();
  try {
    const given = { ...values(), ...(await encoded($("upload").files[0])) };
    say("");
    const last = await ask("search", given, ({ wanted, picture, caption, done }) => {
      if (done) return;
      fill($(wanted ? "target" : "picture"), wanted ?? picture, caption);
      $("target").hidden = false;
      if (!wanted) shown = "own";
    }, search.signal);
    if (!last?.done) throw new Error("the search has ended early; see the terminal");
    controls.start.set("own");
    draw();
  } finally {
    search = null;
  }
}

function download(name, source) {
  made("a", document.body, { href: source, download: name }).click();
  document.body.lastElementChild.remove();
}

function wire() {
  const clicks = {
    more: showSeeds,
    walk,
    random: () => choose(crypto.getRandomValues(new Uint32Array(1))[0]),
    plane_zero: () => {
      ["plane_x", "plane_y"].forEach((name) => controls[name].set(0));
      moved("plane", "plane_x");
    },
    reset: () => {
      for (const { id } of $("of_edits").children) controls[id].set(["edit_first", "edit_last"].includes(id) ? controls[id].first : 0);
      draw();
    },
    picture_file: () => {
      if (!shown) throw new Error("there is no image yet");
      download(`${shown}.png`, $("picture").querySelector("img").src);
    },
    latents_file: async () => {
      const given = values();
      const { content } = await ask("latents", given);
      download(`${fileOf(given)}.npz`, `data:application/octet-stream;base64,${content}`);
    },
    project,
    stop: () => { search?.abort(); draw(); },
  };
  for (const [id, action] of Object.entries(clicks)) {
    $(id).addEventListener("click", () => politely(async () => action()));
  }
  addEventListener("hashchange", () => {
    walking = false;
    controls.start.set("seed");
    readLink();
    draw();
  });
  for (const event of ["pointerdown", "pointermove"]) $("plane").addEventListener(event, dragged);
}

politely(async () => {
  scene = await withBar(() => ask("scene"));
  build();
  readLink();
  wire();
  await draw();
  if (scene.quick) await showSeeds();
});
