import * as React from 'react';

import { renderPanel } from '../panelModule';
import { IChartSettings } from '../tokens';
import { RunModel } from './model';
import { PanelAdapter } from './panelAdapter';

/**
 * The notebook's panel, fed by the live topic.
 */
export function LiveSection(props: {
  model: RunModel;
  stop: () => Promise<void>;
  charts: IChartSettings;
}): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    if (!host.current) {
      return;
    }
    const adapter = new PanelAdapter(props.model, props.stop, props.charts);
    const erase = renderPanel(adapter, host.current);
    return () => {
      erase();
      adapter.dispose();
    };
  }, [props.model]);
  return <div ref={host} className="llmops-runpanel-live" />;
}
