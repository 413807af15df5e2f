// Draws people.py's list: one JSON object a line on the standard input, one PNG each.
// npm install @dicebear/core @dicebear/personas @resvg/resvg-js
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, folder, size] = process.argv.slice(2);
const require = createRequire(join(modules, 'package.json'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { createAvatar } = await load('@dicebear/core');
const personas = await load('@dicebear/personas');
const { Resvg } = await load('@resvg/resvg-js');

const [LEFT, TOP, PART] = [0.12, 0.06, 0.76]; // the head and the neck, in parts of the drawing
for (const line of readFileSync(0, 'utf8').trim().split('\n')) {
  const { file, ...options } = JSON.parse(line);
  const svg = createAvatar(personas, options).toString().replace(/viewBox="([^"]+)"/, (_, box) => {
    const [left, top, width, height] = box.split(' ').map(Number);
    return `viewBox="${left + LEFT * width} ${top + TOP * height} ${PART * width} ${PART * height}"`;
  });
  const picture = new Resvg(svg, { fitTo: { mode: 'width', value: Number(size) }, background: '#ffffff' });
  writeFileSync(join(folder, file), picture.render().asPng());
}
