import { Signal } from '@lumino/signaling';
import * as React from 'react';
import { createRoot } from 'react-dom/client';
import { act } from 'react';
import { describe, expect, it } from 'vitest';

import { IChartChoice } from '../../panel/numbers';
import { IChartSettings } from '../../tokens';
import { CurveChoice } from '../compare/curves';
import { useChartChoice } from '../compare/chart';

class Kept implements IChartSettings {
  value: Partial<IChartChoice> = { x: 'step' };
  changed = new Signal<unknown, void>(this);
  read = () => this.value;
  keep = (value: IChartChoice) => void (this.value = value);
}

describe('the choices for the charts of a comparison', () => {
  it('keep what a run has chosen in its panel since', async () => {
    const kept = new Kept();
    let shown: CurveChoice | undefined;
    let choose: (part: Partial<CurveChoice>) => void = () => undefined;
    function Probe(): null {
      [shown, choose] = useChartChoice(kept);
      return null;
    }
    const root = createRoot(document.createElement('div'));
    await act(async () => root.render(<Probe />));
    kept.value = { x: 'step', smoothing: 0.4 };
    await act(async () => choose({ log: true }));
    expect(kept.value).toMatchObject({ smoothing: 0.4, log: true });
    expect(shown).toMatchObject({ smoothing: 0.4, log: true });
    kept.value = { x: 'epoch' };
    await act(async () => kept.changed.emit());
    expect(shown?.x).toBe('epoch');
    root.unmount();
  });
});
