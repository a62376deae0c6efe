import { ISignal } from '@lumino/signaling';
import * as React from 'react';

const TICK_MS = 5000;

/**
 * Draw again with each change of a model.
 */
export function useChanges(model: {
  changed: ISignal<unknown, unknown>;
}): void {
  const [, again] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const listen = () => again();
    model.changed.connect(listen);
    listen(); // For what has changed since the drawing.
    return () => {
      model.changed.disconnect(listen);
    };
  }, [model]);
}

/**
 * Unix time in seconds, for ages; updated every five seconds.
 */
export function useNow(): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
