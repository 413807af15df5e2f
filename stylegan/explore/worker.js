// Generates the images of an exported page, as `stylegan generate` does, with ONNX Runtime Web.

import * as ort from "./onnxruntime/ort.js";
import { next, ofSeed, ofSequence } from "./random.js";

ort.env.wasm.numThreads = 1; // more need HTTP headers that few hosts send

let files = {}; // their bytes by name, of a page in one file
let described = null; // a promise of what scene.json says
let network = null; // a promise of its session

// Reads a file of the page, or of its folder; `seen` is called with the number of bytes of each piece.
async function fetched(name, seen = () => {}) {
  const response = files[name] ? new Response(files[name]) : await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be loaded: ${response.status} ${response.statusText}`);
  const counting = new TransformStream({
    transform: (piece, stream) => { seen(piece.length); stream.enqueue(piece); },
  });
  return new Response(response.body.pipeThrough(counting)).arrayBuffer();
}

async function describe() {
  const about = JSON.parse(new TextDecoder().decode(await fetched("scene.json")));
  if (!about?.sections) throw new Error("scene.json does not describe a page; export it again");
  return about;
}

// Loads the network; `tell` is called with the fraction that is loaded.
async function load(bytes, tell) {
  let come = 0;
  const seen = (count) => tell({ loaded: (come += count) / bytes });
  const names = ["onnxruntime/ort.wasm", "network.onnx"];
  const [wasm, graph] = await Promise.all(names.map((name) => fetched(name, seen)));
  ort.env.wasm.wasmBinary = wasm;
  return ort.InferenceSession.create(graph);
}

// Rejects a value that a control cannot have; a link may hold one.
function check({ kind, label, low, high, most, step, options }, value) {
  const right = kind === "Slider"
    ? value !== null && value >= low && value <= (most ?? high) && (step % 1 || value % 1 === 0)
    : kind !== "Menu" || options.some(([choice]) => choice === value);
  if (!right) throw new Error(`${label} cannot be ${value}`);
}

// The network's inputs by name, each as a flat array.
function inputs(given, { shapes, layers, moves, label_rows: rows }) {
  const [first, last] = [given.edit_first, given.edit_last].sort((a, b) => a - b);
  const whole = last - first + 1 === layers; // if so, each edit has its own layers
  const chosen = (layer) => layer >= first && layer <= last;
  const every = [...Array(shapes.mixed[0]).keys()]; // also layers that have not grown
  const seeds = [given.seed, given.plane_a, given.plane_b, given.mix_seed];
  const [count] = shapes.noise ?? [0];
  return {
    z: seeds.flatMap((seed) => [...next(ofSeed(seed), shapes.z[1])]),
    labels: rows?.[given.label]
      ?? Array.from({ length: shapes.labels?.[1] ?? 0 }, (_, i) => i === Number(given.label)),
    plane: [given.plane_x, given.plane_y],
    mixed: every.map((layer) => given.mix_layers.includes(layer)),
    psi: [given.psi],
    strengths: every.flatMap((layer) => moves.map(
      ({ name, layers }) => ((whole ? layers.includes(layer) : chosen(layer)) ? given[name] : 0),
    )),
    stored: [given.noise === "const"],
    noise: given.noise === "random" ? next(ofSequence(given.noise_seed, 1), count) : new Float32Array(count),
  };
}

async function picture(given, tell) {
  const about = await scene();
  for (const control of Object.values(about.sections).flat()) check(control, given[control.name]);
  const session = await (network ??= load(about.bytes, tell).catch((error) => { network = null; throw error; }));
  const numbers = inputs(given, about);
  const feeds = Object.fromEntries(Object.entries(about.shapes).map(
    ([name, shape]) => [name, new ort.Tensor("float32", Float32Array.from(numbers[name]), shape)],
  ));
  const { dims: [height, width], data } = (await session.run(feeds)).pixels;
  return { pixels: new Uint8ClampedArray(data), width, height };
}

const scene = () => (described ??= describe().catch((error) => { described = null; throw error; }));
const hold = (given) => { files = given; return true; };
const answers = { files: hold, scene, picture };
let before = Promise.resolve(); // requests are answered one by one

onmessage = ({ data: { path, values }, ports: [port] }) => {
  before = before.then(async () => {
    try {
      port.postMessage({ answer: await answers[path](values, (part) => port.postMessage({ part })) });
    } catch (error) {
      port.postMessage({ error: error.message });
    }
  });
};
