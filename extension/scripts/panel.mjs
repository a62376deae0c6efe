// Makes one ES module and one style sheet of the notebook panel's parts: Lab shows the same panel.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';

const STATIC = new URL('../../llmops_kernel/widgets/static/', import.meta.url);
const SOURCE = new URL('../src/generated/panel.ts', import.meta.url);
const STYLE = new URL('../style/generated/panel.css', import.meta.url);
const EXPORTS = [
  'AXIS_COLUMNS',
  'Columns',
  'KEYS',
  'Shown',
  'atSteps',
  'axis',
  'chartSettings',
  'cssColor',
  'drawMarks',
  'followMouse',
  'h',
  'logRange',
  'marksOf',
  'panned',
  'positive',
  'pressed',
  'shortNumber',
  'smoothed',
  'ticksOf',
  'toCsv',
  'uPlot',
  'UNITS',
  'valueAt',
  'xValues',
  'zoomed',
  'zoomIntoSelection'
];

const read = name => readFileSync(new URL(name, STATIC), 'utf8');
const joined = names => names.map(read).join('\n');

/** Only when it differs: a newer date would make the build tools work again. */
function write(url, text) {
  mkdirSync(new URL('.', url), { recursive: true });
  try {
    if (readFileSync(url, 'utf8') === text) return;
  } catch {
    // There is none yet.
  }
  writeFileSync(url, text);
}

const { scripts, styles } = JSON.parse(read('parts.json'));
write(
  SOURCE,
  `// @ts-nocheck\n${joined(scripts)}\nexport { ${EXPORTS.join(', ')} };\n`
);
write(STYLE, joined(styles));
