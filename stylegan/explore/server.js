"use strict";
// The engine of the page that `stylegan explore` serves: the server generates images.

// Sends a request to the server; `seen` is called with each part of the answer, the last one is returned.
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
