"use strict";
// The engine of a page from `stylegan explore --export`: a worker of the browser generates images.

const FROM_A_FILE = "Browsers run this page only from a web server. To try it here, run " +
  "python -m http.server in its folder, then open http://localhost:8000";
const DOES_NOT_RUN = "worker.js, random.js or onnxruntime/ort.js is missing in this page's folder, or its web server " +
  "does not send it as text/javascript, or this browser cannot run it";
const worker = location.protocol === "file:" ? null : new Worker("worker.js", { type: "module" });
const failed = new Promise((_, reject) => {
  worker?.addEventListener("error", () => reject(new Error(DOES_NOT_RUN)));
});

// Sends a request to the worker; `seen` is called with each part of the answer, the last one is returned.
async function ask(path, values = {}, seen = () => {}) {
  if (!worker) throw new Error(FROM_A_FILE);
  const { port1, port2 } = new MessageChannel();
  const answered = new Promise((resolve, reject) => {
    port1.onmessage = ({ data: { part, answer, error } }) => {
      if (error !== undefined) reject(new Error(error));
      else if (answer) resolve(answer);
      else seen(part);
    };
  });
  worker.postMessage({ path, values }, [port2]);
  return Promise.race([answered, failed]);
}
