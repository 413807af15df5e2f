// Draws the pictures of an exported page, as `stylegan generate` does, by ONNX Runtime Web.

import * as ort from "./onnxruntime/ort.js";
import { next, ofSeed, ofSequence } from "./random.js";

ort.env.wasm.numThreads = 1; // more need headers that few hosts send

const scene = fetched("scene.json").then((content) => JSON.parse(new TextDecoder().decode(content)));
let loading = null; // a promise of what `load` returns
const known = {}; // w by seed and class

// The content of a file of the folder; `seen` gets the number of bytes of each piece.
async function fetched(name, seen = () => {}) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} is not here: ${response.status} ${response.statusText}`);
  const counting = new TransformStream({
    transform: (piece, stream) => { seen(piece.length); stream.enqueue(piece); },
  });
  return new Response(response.body.pipeThrough(counting)).arrayBuffer();
}

// The networks and their numbers; `tell` gets the part that has come.
async function load({ bytes, w, centers, moves, noise }, tell) {
  let come = 0;
  const seen = (count) => tell({ loaded: (come += count) / bytes });
  const names = ["onnxruntime/ort.wasm", "mapping.onnx", "synthesis.onnx", "numbers.bin"];
  const [wasm, mapping, synthesis, numbers] = await Promise.all(names.map((name) => fetched(name, seen)));
  ort.env.wasm.wasmBinary = wasm;
  let at = 0; // bytes
  const row = (count) => {
    at += 4 * count;
    return new Float32Array(numbers, at - 4 * count, count);
  };
  return {
    mapping: await ort.InferenceSession.create(mapping),
    synthesis: await ort.InferenceSession.create(synthesis),
    centers: Array.from({ length: centers }, () => row(w)),
    directions: moves.map(() => row(w)),
    noise: noise.map((side) => row(side * side)),
  };
}

// Refuses what a control cannot be, as a link may say.
function check({ kind, label, low, high, most, step, options }, value) {
  const right = kind === "Slider"
    ? value !== null && value >= low && value <= (most ?? high) && (step % 1 || value % 1 === 0)
    : kind !== "Menu" || options.some(([choice]) => choice === value);
  if (!right) throw new Error(`${label}: there is no ${value}`);
}

const tensor = (numbers, ...shape) => new ort.Tensor("float32", numbers, shape);
const plus = (x, factor, y) => x.map((number, i) => number + factor * y[i]);
const distance = (x, y) => x.reduce((sum, number, i) => sum + (number - y[i]) ** 2, 0);

// w of a seed.
async function mapped(seed, label, { z, classes }, { mapping }) {
  const feeds = { z: tensor(next(ofSeed(seed), z), 1, z) };
  if (classes) feeds.labels = tensor(new Float32Array(classes).fill(1, label, label + 1), 1, classes);
  return (known[`${seed} ${label}`] ??= (await mapping.run(feeds)).w.data);
}

// Styles of all layers: of the seed, moved in a plane, mixed, truncated and edited.
async function styles(given, about, model) {
  const of = (seed) => mapped(seed, Number(given.label ?? 0), about, model);
  const own = await of(given.seed);
  const other = await of(given.mix_seed);
  let w = own;
  for (const [place, seed] of [[given.plane_x, given.plane_a], [given.plane_y, given.plane_b]]) {
    if (place) w = plus(w, place, plus(await of(seed), -1, own));
  }
  const [first, last] = [given.edit_first, given.edit_last].sort((a, b) => a - b);
  const every = last - first + 1 === about.layers;
  return Array.from({ length: about.layers }, (_, layer) => {
    let row = given.mix_layers.includes(layer) ? other : w;
    if (layer < about.cutoff) {
      const center = model.centers.reduce((a, b) => (distance(row, b) < distance(row, a) ? b : a));
      row = plus(center, given.psi, plus(row, -1, center));
    }
    about.moves.forEach(({ name, layers }, i) => {
      const moved = every ? layers.includes(layer) : layer >= first && layer <= last;
      if (moved) row = plus(row, given[name], model.directions[i]);
    });
    return row;
  });
}

async function picture(given, tell) {
  const about = await scene;
  for (const control of Object.values(about.sections).flat()) check(control, given[control.name]);
  const model = await (loading ??= load(about, tell));
  const ws = (await styles(given, about, model)).flatMap((row) => [...row]);
  const feeds = { ws: tensor(Float32Array.from(ws), 1, about.layers, about.w) };
  const random = ofSequence(given.noise_seed, 1);
  about.noise.forEach((side, i) => {
    const map = {
      const: () => model.noise[i],
      random: () => next(random, side * side),
      none: () => new Float32Array(side * side),
    }[given.noise]();
    feeds[`noise_${i}`] = tensor(map, 1, 1, side, side);
  });
  const { dims: [height, width], data } = (await model.synthesis.run(feeds)).pixels;
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(data), width, height), 0, 0);
  return { picture: new FileReaderSync().readAsDataURL(await canvas.convertToBlob()) };
}

const answers = { scene: () => scene, picture };
let before = Promise.resolve(); // one after the other

onmessage = ({ data: { path, values }, ports: [port] }) => {
  before = before.then(async () => {
    try {
      port.postMessage({ answer: await answers[path](values, (part) => port.postMessage({ part })) });
    } catch (error) {
      port.postMessage({ error: error.message });
    }
  });
};
