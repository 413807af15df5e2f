"use strict";
// The engine of a page from `stylegan explore --export`: a worker of the browser generates images. A page in one file
// holds the worker's files in script elements, in base64.

const FROM_A_FILE = "Browsers run this page only from a web server. To try it here, run " +
  "python -m http.server in its folder, then open http://localhost:8000. To get a page in one file, which needs no " +
  "server, run stylegan explore with --export page.html";
const DOES_NOT_RUN = "worker.js, random.js or onnxruntime/ort.js is missing in this page's folder, or its web server " +
  "does not send it as text/javascript, or this browser cannot run it";
const TOO_OLD = "This browser cannot run this page, which needs WebAssembly and module workers: use " +
  "Chrome or Edge from version 91, Firefox from 114 or Safari from 16.4";

const held = {}; // base64 of the files in this page, by name: a list of pieces
for (const element of document.querySelectorAll("script[data-file]")) {
  const { file } = element.dataset;
  (held[file] = held[file] || []).push(element.text);
  element.remove(); // its memory is not needed twice
}
const isOneFile = "worker.js" in held;

// The address of a script of the worker; in one file, a data: address in which imports are such addresses, too, as
// Chromium opens no blob: address of a module from file://.
function addressOf(name) {
  if (!isOneFile) return name;
  const address = (content) => `data:text/javascript;base64,${content}`;
  const source = atob(held[name].join(""));
  return address(btoa(source.replace(/"\.\/(.+?)"/g, (_, file) => `"${address(held[file].join(""))}"`)));
}

function decoded(pieces) {
  const characters = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const bytes = new Uint8Array((characters / 4) * 3); // and at most two more
  let count = 0;
  for (const piece of pieces.map((text) => atob(text))) {
    for (let i = 0; i < piece.length; i++) bytes[count++] = piece.charCodeAt(i);
  }
  return bytes.subarray(0, count);
}

// Starts the worker and hands it the files in this page.
async function start() {
  if (location.protocol === "file:" && !isOneFile) throw new Error(FROM_A_FILE);
  if (!window.Worker || !window.WebAssembly) throw new Error(TOO_OLD);
  const worker = new Worker(addressOf("worker.js"), { type: "module" });
  const failed = new Promise((_, reject) => {
    worker.addEventListener("error", () => reject(new Error(isOneFile ? TOO_OLD : DOES_NOT_RUN)));
  });
  const send = (path, values, seen, transferred = []) => {
    const { port1, port2 } = new MessageChannel();
    const answered = new Promise((resolve, reject) => {
      port1.onmessage = ({ data: { part, answer, error } }) => {
        if (error !== undefined) reject(new Error(error));
        else if (answer) resolve(answer);
        else seen(part);
      };
    });
    worker.postMessage({ path, values }, [port2, ...transferred]);
    return Promise.race([answered, failed]);
  };
  const files = {}; // not blobs: in WebKit, the worker of a data: address cannot read any
  for (const name of Object.keys(held).filter((name) => !name.endsWith(".js"))) files[name] = decoded(held[name]);
  await send("files", files, null, Object.values(files).map(({ buffer }) => buffer));
  return send;
}

// The worker's image as a data: address.
function encodedImage({ pixels, width, height }) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
  return canvas.toDataURL();
}

let started = null; // a promise of the function that sends to the worker

// Sends a request to the worker; `seen` is called with each part of the answer, the last one is returned.
async function ask(path, values = {}, seen = () => {}) {
  started = started || start();
  const answer = await (await started)(path, values, seen);
  return path === "picture" ? { picture: encodedImage(answer) } : answer;
}
