"use strict";
// Builds the controls that the server describes. The server draws, and checks all values.

const SMOOTH = 256; // pixels, from which on enlarged pictures are smoothed
const LARGEST_FILE = 20e6; // bytes
const SEEDS = 12; // pictures to choose from at once

const $ = (id) => document.getElementById(id);
const controls = {}; // by name: the functions get() and set(value), and the value at first
let reach = 1; // of the plane of seeds
let firstSeed = 0; // of the pictures to choose from
let search = null; // an AbortController while a picture is searched for

function made(kind, parent, properties = {}) {
  const element = Object.assign(document.createElement(kind), properties);
  parent.append(element);
  return element;
}

// Asks the server; `seen` gets each part of the answer, the last one is returned.
async function ask(path, values = {}, seen = () => {}, signal = undefined) {
  let response;
  try {
    response = await fetch(path, { method: "POST", body: JSON.stringify(values), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the page's server has ended; start stylegan explore again");
  }
  let last = null, rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return last;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      last = JSON.parse(line);
      if (last.error !== undefined) throw new Error(last.error);
      seen(last);
    }
  }
}

function say(message) {
  $("message").textContent = message;
  $("picture").classList.toggle("stale", message !== "");
}

// What the user does; what cannot be becomes a message.
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
    set: (to) => { number.value = range.value = to; },
  };
}

function menu(box, { label, options, value }, moved) {
  const select = made("select", made("label", box, { textContent: `${label} ` }));
  for (const [key, text] of options) made("option", select, { value: key, textContent: text });
  select.value = value;
  select.addEventListener("input", moved);
  return { get: () => select.value, set: (to) => { select.value = to; } };
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
    set: (to) => ticks.forEach((tick) => { tick.checked = to.includes(Number(tick.value)); }),
  };
}

const KINDS = { Slider: slider, Menu: menu, Layers: layers };

function build({ name, plane, sections }) {
  $("name").textContent = name;
  document.title = `${name} - StyleGAN explorer`;
  reach = plane;
  for (const [section, members] of Object.entries(sections)) {
    const parent = $(section === "start" ? "start" : `of_${section}`);
    for (const one of members) {
      const box = made("div", parent, { id: one.name, className: "control", title: one.tip });
      controls[one.name] = { ...KINDS[one.kind](box, one, () => moved(section, one.name)), first: one.value };
    }
  }
  $("of_edits").parentElement.hidden = sections.edits.length <= 2;
  $("of_mixing").parentElement.hidden = sections.mixing[1].count <= 1;
  placed();
}

const values = () => Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.get()]));

function moved(section, name) {
  const ofSeed = ["picture", "plane", "mixing"].includes(section) && !name.startsWith("noise");
  if (ofSeed) controls.start.set("seed");
  if (name === "noise_seed") controls.noise.set("random");
  placed();
  if (section !== "own") draw();
}

// Where the dot of the plane is, and the seeds at its sides.
function placed() {
  const at = (name, sign) => `${50 + (sign * 50 * controls[name].get()) / reach}%`;
  Object.assign($("plane_dot").style, { left: at("plane_x", 1), top: at("plane_y", -1) });
  $("plane_right").textContent = controls.plane_a.get();
  $("plane_top").textContent = controls.plane_b.get();
}

function dragged(event) {
  if (event.type !== "pointerdown" && !event.buttons) return;
  if (event.type === "pointerdown") $("plane").setPointerCapture(event.pointerId);
  const { left, top, width, height } = $("plane").getBoundingClientRect();
  const within = (x) => (reach * Math.max(-1, Math.min(1, x))).toFixed(2);
  controls.plane_x.set(within((2 * (event.clientX - left)) / width - 1));
  controls.plane_y.set(within(1 - (2 * (event.clientY - top)) / height));
  moved("plane", "plane_x");
}

function fill(figure, source, caption) {
  const image = figure.querySelector("img");
  Object.assign(image, { src: source, alt: caption });
  image.decode().then(() => image.classList.toggle("smooth", image.naturalWidth >= SMOOTH), () => {});
  figure.querySelector("figcaption").textContent = caption;
}

let drawing = false, again = false;

// Draws what the controls specify; while a picture is made, only the last request waits.
async function draw() {
  again = true;
  if (drawing) return;
  drawing = true;
  while (again) {
    again = false;
    await politely(async () => {
      const { picture, caption } = await ask("picture", values());
      fill($("picture"), picture, caption);
      say("");
    });
  }
  drawing = false;
}

let choosing = 0;

// Pictures of some seeds to choose from, with the truncation and class of now.
async function showSeeds() {
  const mine = ++choosing;
  $("seeds").replaceChildren();
  const given = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.first]));
  for (const name of ["psi", "label", "noise"]) if (controls[name]) given[name] = controls[name].get();
  for (let seed = firstSeed; seed < firstSeed + SEEDS; seed++) {
    const { picture } = await ask("picture", { ...given, seed });
    if (mine !== choosing) return;
    const button = made("button", $("seeds"), { title: `seed ${seed}` });
    made("img", button, { src: picture, alt: `seed ${seed}` });
    made("span", button, { textContent: seed });
    button.addEventListener("click", () => { controls.seed.set(seed); moved("picture", "seed"); });
  }
}

async function encoded(file) {
  if (!file) throw new Error("choose a file first");
  if (file.size > LARGEST_FILE) throw new Error(`${file.name}: more than ${LARGEST_FILE / 1e6} MB are too much`);
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
    await ask("search", given, ({ wanted, picture, caption }) => {
      fill($(wanted ? "target" : "picture"), wanted ?? picture, caption);
      $("target").hidden = false;
    }, search.signal);
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
  const name = () => (controls.start.get() === "own" ? "own" : `seed${String(controls.seed.get()).padStart(4, "0")}`);
  const clicks = {
    more: () => { firstSeed += SEEDS; return showSeeds(); },
    random: () => {
      controls.seed.set(crypto.getRandomValues(new Uint32Array(1))[0]);
      moved("picture", "seed");
    },
    plane_zero: () => {
      ["plane_x", "plane_y"].forEach((name) => controls[name].set(0));
      moved("plane", "plane_x");
    },
    reset: () => {
      for (const { id } of $("of_edits").children) controls[id].set(controls[id].first);
      draw();
    },
    picture_file: () => download(`${name()}.png`, $("picture").querySelector("img").src),
    latents_file: async () => {
      const { content } = await ask("latents", values());
      download(`${name()}.npz`, `data:application/octet-stream;base64,${content}`);
    },
    project,
    stop: () => { search?.abort(); draw(); },
  };
  for (const [id, action] of Object.entries(clicks)) {
    $(id).addEventListener("click", () => politely(async () => action()));
  }
  for (const event of ["pointerdown", "pointermove"]) $("plane").addEventListener(event, dragged);
}

politely(async () => {
  build(await ask("scene"));
  wire();
  await draw();
  await showSeeds();
});
