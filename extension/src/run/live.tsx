import * as React from 'react';

import { renderPanel } from '../panelModule';
import { IChartSettings } from '../tokens';
import { PanelSamples } from '../wire';
import { RunModel } from './model';
import { PanelAdapter } from './panelAdapter';

/**
 * The notebook's panel, fed by the live topic.
 */
export function LiveSection(props: {
  model: RunModel;
  charts: IChartSettings;
  samples: (first: number) => Promise<PanelSamples>;
}): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    if (!host.current) {
      return;
    }
    const { model, charts, samples } = props;
    const adapter = new PanelAdapter(model, charts, samples);
    const erase = renderPanel(adapter, host.current);
    return () => {
      erase();
      adapter.dispose();
    };
  }, [props.model]);
  return <div ref={host} className="llmops-runpanel-live" />;
}
