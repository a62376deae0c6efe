// Numbers as people read them; an unknown one is a dash. The server sends figures as text:
// only what changes with the browser's clock or layout is formatted here.

export const DASH = '–';

type Maybe = number | null | undefined;

function isKnown(value: Maybe): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

export function count(value: Maybe): string {
  return isKnown(value) ? value.toLocaleString('en-US') : DASH;
}

/** CPUs and GPUs may be parts. */
export function amount(value: Maybe): string {
  return isKnown(value) ? String(+value.toFixed(2)) : DASH;
}

export function bytes(value: Maybe): string {
  if (!isKnown(value)) {
    return DASH;
  }
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let shown = value;
  let unit = 0;
  while (Math.abs(shown) >= 1024 && unit < units.length - 1) {
    shown /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? shown : shown.toPrecision(3)} ${units[unit]}`;
}

/** `5 s`, `3 min`, `2 h 10 min`, `4 d`. */
export function duration(value: Maybe): string {
  if (!isKnown(value)) {
    return DASH;
  }
  if (value < 10) {
    return `${Math.max(0, value).toFixed(value < 9.95 ? 1 : 0)} s`;
  }
  if (value < 99.5) {
    return `${Math.round(value)} s`;
  }
  const minutes = Math.round(value / 60);
  if (minutes < 100) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 48) {
    return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  }
  return `${Math.round(hours / 24)} d`;
}

/** How long ago, in one unit; `now` up to five seconds. */
export function age(sinceS: Maybe, nowS = Date.now() / 1000): string {
  if (!isKnown(sinceS)) {
    return DASH;
  }
  const passed = Math.round(nowS - sinceS);
  if (passed < 5) {
    return 'now';
  }
  const hours = Math.round(passed / 3600);
  return passed > 6000 && hours < 48 ? `${hours} h` : duration(passed);
}

export function steps(last: Maybe, total: Maybe): string {
  if (!isKnown(last) && !isKnown(total)) {
    return DASH;
  }
  return isKnown(total) ? `${count(last ?? 0)} / ${count(total)}` : count(last);
}
