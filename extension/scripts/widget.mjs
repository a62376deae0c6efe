// Makes what a notebook's widget loads of src/panel: one ES module and one style sheet, which are
// committed, so that installing needs no Node.js. `--check` fails where they are out of date.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

import { rolldown } from 'rolldown';

const TARGET = new URL('../../llmops_kernel/widgets/static/', import.meta.url);
const require = createRequire(import.meta.url);
const { version } = require('uplot/package.json');
const NOTICE = `With uPlot ${version}, (c) Leon Sorokin, MIT: see uPlot.LICENSE`;

async function script() {
  const bundle = await rolldown({
    input: fileURLToPath(new URL('../src/panel/notebook.ts', import.meta.url)),
    tsconfig: false
  });
  const { output } = await bundle.generate({
    format: 'esm',
    minify: true
  });
  await bundle.close();
  return `/* ${NOTICE} */\n${output[0].code.trim()}\n`;
}

const read = path => readFileSync(path, 'utf8').trim();

const files = {
  'panel.js': await script(),
  'panel.css': [
    read(require.resolve('uplot/dist/uPlot.min.css')),
    read(new URL('../style/panel.css', import.meta.url)),
    ''
  ].join('\n')
};
for (const [name, text] of Object.entries(files)) {
  const path = new URL(name, TARGET);
  if (existsSync(path) && readFileSync(path, 'utf8') === text) {
    continue;
  }
  if (process.argv.includes('--check')) {
    console.error(`${name} is not what src/panel gives: make widget`);
    process.exitCode = 1;
  } else {
    writeFileSync(path, text);
  }
}
