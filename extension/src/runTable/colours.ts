/** The colours that a user may give a run; legible on light and dark themes. */
export const COLOURS: Readonly<Record<string, string>> = {
  blue: '#1e88e5',
  orange: '#ef6c00',
  green: '#43a047',
  purple: '#8e24aa',
  teal: '#00897b',
  pink: '#d81b60',
  brown: '#795548',
  grey: '#78909c'
};

/** By the place of a value between the lowest and the highest, else the run's own colour. */
export function colourOf(tone: number | null, colour: string): string {
  if (tone !== null) {
    return toneColour(tone);
  }
  return COLOURS[colour] ?? 'transparent';
}

/** From blue through green to orange: also told apart by who cannot see red and green. */
export function toneColour(tone: number): string {
  return `hsl(${Math.round(235 - 205 * tone)} 75% ${Math.round(52 - 6 * tone)}%)`;
}
