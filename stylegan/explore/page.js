"use strict";
// The controls of the page. Pictures are made, and all values checked, by the server.

const SMOOTH = 256; // pixels, from which on enlarged pictures are smoothed
const LARGEST_FILE = 20e6; // bytes
const SLIDER_SEEDS = 9999; // a slider is for the first ones; its number takes any
const REACH = 4; // standard deviations either way
const SEEDS = 12; // pictures to choose from at once
const PLANE = 1.25; // how far the plane of seeds reaches; they are at 1
const OF_PLANE = ["plane_x", "plane_y", "plane_a", "plane_b"];
const OF_SEED = ["seed", "label", "psi", "cutoff", "centers", "mix", ...OF_PLANE];
const OF_MIXING = ["mix_seed", "mix_layers"];
const OF_EDITS = ["edit_first", "edit_last"];
const OF_POINTS = ["from", "to", "between"];
const METHODS = {
  pca: "Principal components of w: what varies most",
  sefa: "Factors of the style layers: what they amplify most",
  label: "Classes: towards each of them",
  svm: "Learnt from examples",
};

const TIPS = {
  save: "Keep this picture in the gallery of saved points",
  picture_file: "Download this picture",
  latents_file: "Download its styles, for --latents of the commands",
  more: "Show the next seeds to choose from",
  random: "Take any of the 4,294,967,296 seeds",
  reset: "No edits",
  edit_name: "The name of the edit, for its slider and for --edit of the commands",
  keep_edit: "Keep these moves beside the generator, for every command",
  from: "The saved point where the way begins",
  to: "The saved point where it ends",
  remove: "Take the first of the two points out of the gallery",
  load: "Add the latents of a file to the gallery",
  loop: "Go from the last point back to the first",
  ease: "Slow down at each point, instead of passing it",
  film: "Make a film through all saved points, in their order, and download it",
  stop_film: "End the film that is being made",
  keyframes_file: "Download the points for stylegan video keyframes",
  upload: "A picture of yours, like those of the training",
  each_layer: "Search for a w for each layer instead of one for all",
  tune: "After the search, train a copy of the generator until it makes your picture",
  tune_steps: "Steps of tuning; more of them come nearer to your picture",
  tuned: "The generator of the pictures: the original one, or a copy that was tuned",
  tuned_file: "Download the tuned generator that is chosen, for every command",
  project: "Search for the generator's picture that is most like yours",
  stop: "End the search, and keep nothing",
  mix: "Take the chosen layers from the other seed",
  plane: "Drag the dot between three seeds",
  plane_zero: "Back to the picture's own seed",
  seed: "The random numbers that a picture is made from; the same seed gives the same picture",
  label: "The class of the picture",
  psi: "How far from the average a picture may be",
  cutoff: "How many layers are truncated; the others keep their full variety",
  centers: "Truncate toward the average of all pictures, or the nearest of several centres",
  growth: "The size of the pictures, as they grew in training",
  noise: "Fine random detail",
  noise_seed: "The random numbers of the noise",
  share: "How much of the other network's layers is taken",
  blend_from: "The resolution from which on layers are the other network's",
  mix_seed: "The seed that gives some layers",
  plane_x: "How far toward the second seed, 1 is all the way",
  plane_y: "How far toward the third seed, 1 is all the way",
  plane_a: "The seed at the right of the plane",
  plane_b: "The seed at the top of the plane",
  edit_first: "The coarsest layer that edits move",
  edit_last: "The finest layer that edits move",
  activations_layer: "The layer whose channels are shown; two for each size, from 4x4 on",
  between: "How far from the first saved point to the second",
  film_seconds: "How long the film takes from each point to the next",
  steps: "Steps of the search; more of them find a better likeness",
};
const START_TIP = "What the picture is made from";

const $ = (id) => document.getElementById(id);
const boxes = {}; // the element with the value of each control, by name
const moves = {}; // names of the sliders of each method of directions
let edits = []; // names of the saved edits, whose sliders are called edit_0, edit_1, ...
let points = []; // saved: title, picture, styles
let shown = null; // the answer whose picture is seen
let firstSeed = 0; // of the pictures to choose from
let search = null; // an AbortController while a picture is searched for
let filming = null; // the same while a film is made

function made(kind, parent, properties = {}) {
  const element = Object.assign(document.createElement(kind), properties);
  parent.append(element);
  return element;
}

// Asks the server; `seen` gets each part of the answer, the last one is returned.
async function ask(path, values = {}, seen = () => {}, signal = undefined) {
  const body = JSON.stringify(values);
  const headers = { "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(path, { method: "POST", headers, body, signal });
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

function say(message, note = "") {
  $("message").textContent = message;
  $("note").textContent = note;
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

function slider(parent, name, label, least, most, value, step, { hint, typed, visible = true } = {}) {
  const box = made("div", parent, { id: name, className: "slider", hidden: !visible || most <= least });
  const number = { type: "number", min: least, max: typed ?? most, step, value, id: `${name}_number` };
  made("label", box, { textContent: label, htmlFor: number.id });
  boxes[name] = made("input", box, number);
  const range = made("input", box, { type: "range", min: least, max: most, step, value });
  range.setAttribute("aria-label", label);
  if (hint) made("small", box, { textContent: hint });
  range.addEventListener("input", () => { boxes[name].value = range.value; moved(name); });
  boxes[name].addEventListener("input", () => { range.value = boxes[name].value; moved(name); });
}

function menu(parent, name, label, options, visible) {
  const box = made("label", parent, { textContent: `${label} `, hidden: !visible });
  boxes[name] = made("select", box, { id: name });
  options.forEach(([text, value]) => made("option", boxes[name], { textContent: text, value }));
  boxes[name].addEventListener("input", () => moved(name));
}

function number(name) {
  return boxes[name].value === "" ? null : Number(boxes[name].value);
}

function set(name, value) {
  boxes[name].value = value;
  const range = boxes[name].parentElement.querySelector("input[type=range]");
  if (range) range.value = value;
}

function start(what = undefined) {
  const chosen = `#start input${what ? `[value=${what}]` : ":checked"}`;
  const radio = document.querySelector(chosen);
  if (what) radio.checked = true;
  return radio.value;
}

function values() {
  const given = { start: start(), mix: boxes.mix.checked, noise: boxes.noise.value, centers: boxes.centers.value };
  given.mix_layers = [...document.querySelectorAll("#mix_layers input:checked")].map((box) => Number(box.value));
  for (const name of ["seed", "label", "tuned", "psi", "cutoff", "growth", "noise_seed", "mix_seed", ...OF_PLANE, ...OF_EDITS, "share", "blend_from", "activations_layer", "between"]) {
    given[name] = number(name);
  }
  for (const name of ["from", "to"]) given[name] = points[boxes[name].value]?.styles ?? null;
  for (const method in moves) given[method] = moves[method].map(number);
  given.saved = Object.fromEntries(edits.map((name, i) => [name, number(`edit_${i}`)]));
  return given;
}

// Where between two saved points the picture is.
function way() {
  const [first, last, t] = [...["from", "to"].map((name) => Number(boxes[name].value)), number("between")];
  if (first === last || t === 0 || t === 1) return `point ${(t === 1 ? last : first) + 1}`;
  return `${Math.round(100 * t)} % from point ${first + 1} to ${last + 1}`;
}

function fill(figure, source, caption) {
  const image = figure.querySelector("img");
  image.src = source;
  image.alt = caption;
  image.decode().then(() => image.classList.toggle("smooth", image.naturalWidth >= SMOOTH), () => {});
  figure.querySelector("figcaption").textContent = caption;
}

let drawing = false, again = false;

// Draws what the controls specify; while a picture is made, only the last request waits.
async function draw(note = "") {
  again = true;
  if (drawing) return;
  drawing = true;
  while (again) {
    again = false;
    await politely(async () => {
      const given = values();
      const caption = given.start === "points" ? `${way()} · ` : "";
      const answer = await ask("picture", given);
      shown = { ...answer, title: caption ? way() : answer.name };
      fill($("picture"), answer.picture, caption + answer.caption);
      say("", note);
      if ($("activations").open && !again) await drawActivations(given);
    });
  }
  drawing = false;
}

// The channels of a layer; a picture of a smaller size lacks the last layers.
async function drawActivations(given) {
  try {
    const { picture, caption } = await ask("activations", given);
    fill($("maps"), picture, caption);
  } catch (error) {
    $("maps").querySelector("figcaption").textContent = error.message;
  }
}

// Points hold what the sliders of directions did, so these go back to 0.
function reset() {
  Object.values(moves).flat().forEach((name) => set(name, 0));
  edits.forEach((_, i) => set(`edit_${i}`, 0));
}

function showEdits(names) {
  edits = names;
  $("of_saved").replaceChildren();
  names.forEach((name, i) => slider($("of_saved"), `edit_${i}`, name, -2, 2, 0, 0.05));
  names.forEach((name, i) => { $(`edit_${i}`).title = `The saved edit ${name}, so many times`; });
}

function fromPoints(always = true) {
  if (always || start() === "seed") reset();
  start("points");
}

function moved(name) {
  if (OF_SEED.includes(name)) start("seed");
  if (OF_PLANE.includes(name)) placed();
  if (OF_MIXING.includes(name)) { start("seed"); boxes.mix.checked = true; }
  if (name === "noise_seed") boxes.noise.value = "random";
  if (OF_POINTS.includes(name)) fromPoints(false);
  draw();
}

// Where the dot of the plane is, and the seeds at its sides.
function placed() {
  const at = (name, sign) => `${50 + Math.max(-50, Math.min(50, (sign * 50 * number(name)) / PLANE))}%`;
  Object.assign($("plane_dot").style, { left: at("plane_x", 1), top: at("plane_y", -1) });
  $("plane_right").textContent = boxes.plane_a.value;
  $("plane_top").textContent = boxes.plane_b.value;
}

function dragged(event) {
  if (event.type !== "pointerdown" && !event.buttons) return;
  if (event.type === "pointerdown") $("plane").setPointerCapture(event.pointerId);
  const { left, top, width, height } = $("plane").getBoundingClientRect();
  const within = (x) => (PLANE * Math.max(-1, Math.min(1, x))).toFixed(2);
  set("plane_x", within((2 * (event.clientX - left)) / width - 1));
  set("plane_y", within(1 - (2 * (event.clientY - top)) / height));
  moved("plane_x");
}

function listed(first, last) {
  $("gallery").replaceChildren();
  points.forEach((point, i) => pictureButton($("gallery"), point.picture, i + 1, point.title, () => goTo(i)));
  for (const [name, index] of [["from", first], ["to", last]]) {
    boxes[name].replaceChildren();
    points.forEach((point, i) => made("option", boxes[name], { textContent: `${i + 1}: ${point.title}`, value: i }));
    boxes[name].value = index;
  }
}

function pictureButton(parent, source, text, title, action) {
  const button = made("button", parent, { title });
  made("img", button, { src: source, alt: title });
  made("span", button, { textContent: text });
  button.addEventListener("click", action);
}

function goTo(index, note) {
  set("from", index);
  set("between", 0);
  fromPoints();
  return draw(note);
}

function keep(point) {
  points.push(point);
  listed(Math.max(points.length - 2, 0), points.length - 1);
}

let choosing = 0;

// Pictures of some seeds to choose from, with the truncation and class of now.
async function showSeeds() {
  const mine = ++choosing;
  $("seeds").replaceChildren();
  const given = { ...values(), start: "seed", mix: false, plane_x: 0, plane_y: 0 };
  for (const method in moves) given[method] = moves[method].map(() => 0);
  given.saved = {};
  for (let seed = firstSeed; seed < firstSeed + SEEDS; seed++) {
    const answer = await ask("picture", { ...given, seed });
    if (mine !== choosing) return;
    pictureButton($("seeds"), answer.picture, seed, `seed ${seed}`, () => { set("seed", seed); moved("seed"); });
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

async function load() {
  const file = await encoded($("load").files[0]);
  $("load").value = "";
  const before = points.length;
  let noise = false;
  await ask("load", { file, label: number("label") }, (point) => { keep(point); noise = point.noise; });
  await goTo(before, noise ? "Its noise is not used: the page has noise of its own." : "");
}

async function project() {
  if (search) return;
  search = new AbortController();
  try {
    const file = await encoded($("upload").files[0]);
    const given = { file, label: number("label") };
    for (const name of ["steps", "tune_steps"]) given[name] = number(name);
    for (const name of ["each_layer", "tune"]) given[name] = $(name).checked;
    say("", "searching");
    const found = await ask("search", given, (part) => {
      if (part.wanted) fill($("target"), part.wanted, part.caption);
      else fill($("picture"), part.picture, part.caption);
      $("target").hidden = false;
    }, search.signal);
    keep(found);
    if (found.tuned) {
      made("option", boxes.tuned, { textContent: found.title, value: found.tuned });
      boxes.tuned.value = found.tuned;
      boxes.tuned.parentElement.hidden = $("tuned_file").hidden = false;
    }
    await goTo(points.length - 1);
  } finally {
    search = null;
    if ($("note").textContent === "searching") say($("message").textContent);
  }
}

function download(name, source) {
  made("a", document.body, { href: source, download: name }).click();
  document.body.lastElementChild.remove();
}

function keyframes() {
  const given = { points: points.map((point) => point.styles), noise: boxes.noise.value };
  for (const name of ["loop", "ease"]) given[name] = $(name).checked;
  for (const name of ["tuned", "share", "blend_from", "film_seconds"]) given[name] = number(name);
  return given;
}

async function film() {
  if (filming) return;
  filming = new AbortController();
  try {
    const { name, content } = await ask("film", keyframes(), (part) => {
      if (part.note) $("note").textContent = part.note;
    }, filming.signal);
    download(name, content);
    say("", `The film is ${name}.`);
  } finally {
    if (filming.signal.aborted) say("", "The film was stopped.");
    filming = null;
  }
}

function build(scene) {
  const { layers, growth } = scene;
  $("name").textContent = scene.name;
  document.title = `${scene.name} - StyleGAN explorer`;
  const seeds = { typed: scene.largest_seed };
  menu($("start"), "tuned", "Generator", [["the original", 0]], false);
  slider($("of_picture"), "seed", "Seed", 0, SLIDER_SEEDS, scene.seed, 1, seeds);
  menu($("of_picture"), "label", "Class", scene.classes.map((name, i) => [name, i]), scene.classes.length > 0);
  const reach = Math.max(1.5, Math.abs(scene.psi));
  slider($("of_picture"), "psi", "Truncation ψ", -reach, reach, scene.psi, 0.05,
    { hint: "0 is the average picture, 1 full variety, below 0 the opposite." });
  slider($("of_picture"), "cutoff", "Layers truncated, from the coarsest", 0, layers, scene.cutoff, 1);
  slider($("of_picture"), "growth", "Growth", 2, growth, growth, scene.growing ? 0.01 : 0.25,
    { hint: "2 is 4x4 pixels, 3 is 8x8 and so on; between, the next size fades in." });
  menu($("of_picture"), "noise", "Noise", [["stored", "const"], ["random", "random"], ["off", "none"]], scene.noise);
  slider($("of_picture"), "noise_seed", "Seed of random noise", 0, SLIDER_SEEDS, 0, 1,
    { ...seeds, visible: scene.noise });
  slider($("of_picture"), "share", "Share of the other network", 0, 1, 0, 0.01, { visible: scene.blend });
  slider($("of_picture"), "blend_from", "Its layers begin at", 2, Math.floor(growth), Math.ceil(growth / 2), 1,
    { hint: "2 is 4x4 pixels, 3 is 8x8 and so on.", visible: scene.blend });
  menu($("of_picture"), "centers", "Truncate toward", scene.centers.map(([name, text]) => [text, name]), true);
  slider($("of_plane"), "plane_x", "Toward the second seed", -PLANE, PLANE, 0, 0.01);
  slider($("of_plane"), "plane_y", "Toward the third seed", -PLANE, PLANE, 0, 0.01);
  slider($("of_plane"), "plane_a", "Second seed", 0, SLIDER_SEEDS, 1, 1, seeds);
  slider($("of_plane"), "plane_b", "Third seed", 0, SLIDER_SEEDS, 2, 1, seeds);
  placed();
  for (const event of ["pointerdown", "pointermove"]) $("plane").addEventListener(event, dragged);
  $("mixing").hidden = !scene.styles;
  boxes.mix = $("mix");
  $("mix").addEventListener("input", () => moved("mix"));
  slider($("of_mixing"), "mix_seed", "Other seed", 0, SLIDER_SEEDS, 1, 1, seeds);
  for (let layer = 0; layer < layers; layer++) {
    const size = 2 ** (2 + Math.floor(layer / 2));
    const box = made("label", $("mix_layers"), { title: `Layer ${layer}, of ${size}x${size} pixels, from the other seed` });
    made("input", box, { type: "checkbox", id: `mix_${layer}`, value: layer, checked: layer >= Math.floor(layers / 2) });
    box.append(layer);
  }
  $("mix_layers").addEventListener("input", () => moved("mix_layers"));
  $("directions").hidden = Object.keys(scene.directions).length === 0 && scene.saved.length === 0;
  slider($("of_edits"), "edit_first", "First layer that moves", 0, layers - 1, 0, 1);
  slider($("of_edits"), "edit_last", "Last layer that moves", 0, layers - 1, layers - 1, 1,
    { hint: "Layers are counted from 0, the coarsest. A saved edit keeps its own." });
  showEdits(scene.saved);
  for (const [method, names] of Object.entries(scene.directions)) {
    made("h2", $("of_directions"), { textContent: METHODS[method] ?? method });
    const sliders = made("div", $("of_directions"), { className: "sliders" });
    moves[method] = names.map((_, i) => `${method}_${i + 1}`);
    moves[method].forEach((name, i) => slider(sliders, name, names[i], -REACH, REACH, 0, 0.1));
  }
  slider($("of_activations"), "activations_layer", "Layer, from the coarsest", 0, scene.all_layers - 1,
    Math.min(4, scene.all_layers - 1), 1);
  $("activations").addEventListener("toggle", () => { if ($("activations").open) draw(); });
  for (const name of ["from", "to"]) {
    boxes[name] = $(name);
    $(name).addEventListener("input", () => moved(name));
  }
  slider($("of_points"), "between", "Way from one to the other", 0, 1, 0, 0.01);
  slider($("of_film"), "film_seconds", "Seconds from one point to the next", 0.1, 10, 2, 0.1, { typed: 60 });
  slider($("of_search"), "steps", "Steps", 20, scene.steps, 300, 10);
  slider($("of_tuning"), "tune_steps", "Steps of tuning", 10, scene.steps, 350, 10);
  $("of_each_layer").hidden = !scene.styles;
}

// What a control does, shown when the mouse rests on it; a direction's slider says its own.
function explain() {
  for (const label of document.querySelectorAll("#start label")) label.title = START_TIP;
  for (const [id, tip] of Object.entries(TIPS)) {
    const control = $(id);
    if (control) (control.closest("label") ?? control).title = tip;
  }
  for (const [method, names] of Object.entries(moves)) {
    names.forEach((name, i) => { $(name).title = `${METHODS[method] ?? method}: number ${i + 1}, in standard deviations`; });
  }
}

function wire() {
  const clicks = {
    more: () => { firstSeed += SEEDS; return showSeeds(); },
    random: () => {
      set("seed", crypto.getRandomValues(new Uint32Array(1))[0]);
      moved("seed");
    },
    reset: () => { reset(); return draw(); },
    plane_zero: () => { set("plane_x", 0); set("plane_y", 0); moved("plane_x"); },
    keep_edit: async () => {
      const name = $("edit_name").value.trim();
      const { saved, file } = await ask("keep", { ...values(), name });
      $("edit_name").value = "";
      showEdits(saved);
      reset();
      set(`edit_${saved.indexOf(name)}`, 1);
      await draw(`Saved as ${name} in ${file}.`);
    },
    save: async () => {
      keep(shown);
      say($("message").textContent, `Saved as point ${points.length}.`);
    },
    remove: async () => {
      if (!points.length) throw new Error("no points are saved yet");
      points.splice(Number(boxes.from.value), 1);
      listed(0, points.length - 1);
      if (!points.length) start("seed");
      return draw();
    },
    picture_file: () => download(`${shown.name}.png`, shown.file ?? shown.picture),
    latents_file: async () => {
      const { name, content } = await ask("latents", values());
      download(`${name}.npz`, `data:application/octet-stream;base64,${content}`);
    },
    project,
    stop: () => search?.abort(),
    film,
    stop_film: () => filming?.abort(),
    tuned_file: async () => {
      const { name, content } = await ask("tuned", { tuned: number("tuned") });
      download(name, `data:application/octet-stream;base64,${content}`);
    },
    keyframes_file: async () => {
      const { name, content } = await ask("keyframes", keyframes());
      download(name, `data:application/json;base64,${content}`);
    },
  };
  for (const [id, action] of Object.entries(clicks)) {
    $(id).addEventListener("click", () => politely(async () => action()));
  }
  $("load").addEventListener("change", () => politely(load));
  document.querySelectorAll("#start input").forEach((radio) => radio.addEventListener("input", () => {
    if (start() === "points") fromPoints();
    draw();
  }));
}

politely(async () => {
  build(await ask("scene"));
  explain();
  wire();
  await draw();
  await showSeeds();
});
