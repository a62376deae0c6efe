import { PanelSamples, ProfileDetail } from '../wire';
import { IChartStore } from './chartTools';
import { Charts } from './charts';
import { h } from './dom';
import { profiles } from './profiles';
import { RunData } from './runData';
import { samples } from './samples';
import {
  evaluations,
  figures,
  header,
  losses,
  logTail,
  members,
  memory,
  messages,
  outputs,
  progress,
  waterfall
} from './sections';
import { INotice, IPanelState } from './state';
import { trackers } from './trackers';
import { SystemCharts, stall } from './system';

/** All that a panel draws besides the rows of its run. */
interface IPanelContent {
  state: IPanelState;
  log: string;
  notice: INotice | null;
  /** The samples that were asked for last, once they have come. */
  samples: PanelSamples | null;
  /** The profile that was asked for last, once it has come. */
  profile: ProfileDetail | null;
}

/** Done for the user of a panel; an action that is missing has no button. */
export interface IPanelActions {
  charts: IChartStore;
  stop?: () => void;
  /** End a run that makes no step, and go on from its last checkpoint. */
  restart?: () => Promise<void>;
  /** Ask the run to profile its next steps. */
  profile?: (steps: number) => Promise<void>;
  /** Ask for one profile of those that are there. */
  askForProfile?: (number: number) => void;
  /** Submit the run again with the change that its verdict proposes. */
  tryChange?: (overrides: string[]) => void;
  /** Ask for the samples from this number on. */
  askForSamples?: (first: number) => void;
}

const THEME = ['data-jp-theme-light', 'data-jp-theme-name', 'class'];

/**
 * The live panel of one run, the same in a notebook and in Lab: whoever feeds it writes rows into
 * its data and calls `draw`, and gives all else to `show`.
 */
export class RunPanel {
  constructor(host: HTMLElement, data: RunData, actions: IPanelActions) {
    const charts = new Charts(data, actions.charts);
    const messagesPart = messages();
    const samplesPart = samples(actions.askForSamples);
    const log = logTail();
    const system = new SystemCharts();
    const profilesPart = profiles(actions);
    const before = [
      header(actions.stop),
      progress(),
      figures(),
      stall(actions.restart)
    ];
    const after = [
      waterfall(),
      losses(actions.tryChange),
      memory(),
      evaluations(),
      members()
    ];
    const last = [outputs(), trackers()];
    const parts = [
      ...before,
      messagesPart,
      charts,
      system,
      profilesPart,
      ...after,
      samplesPart,
      ...last,
      log
    ];
    const elements = parts.map(({ element }) => element);
    const root = h('section.run', { 'aria-label': 'Run' }, ...elements);
    host.append(root);
    this._charts = charts;
    this._system = system;
    this._drawNow = () => {
      const { state, notice } = this._content;
      [...before, ...after, ...last].forEach(part => part.update(state));
      messagesPart.update(state, notice);
      samplesPart.update(state, this._content.samples);
      profilesPart.update(state, this._content.profile);
      log.update(this._content.log);
      root.dataset.state = state.state ?? '';
      root.dataset.steps = String(data.count);
      charts.draw(state);
      system.update(state);
    };
    this._theme.observe(document.body, {
      attributes: true,
      attributeFilter: THEME
    });
    this.draw();
  }

  show(content: Partial<IPanelContent>): void {
    Object.assign(this._content, content);
    this.draw();
  }

  /** Draw with the next frame of the screen: many messages may come within one. */
  draw(): void {
    cancelAnimationFrame(this._frame);
    this._frame = requestAnimationFrame(this._drawNow);
  }

  dispose(): void {
    cancelAnimationFrame(this._frame);
    this._theme.disconnect();
    this._charts.dispose();
    this._system.dispose();
  }

  private _content: IPanelContent = {
    state: {},
    log: '',
    notice: null,
    samples: null,
    profile: null
  };
  private _charts: Charts;
  private _system: SystemCharts;
  private _drawNow: () => void;
  private _frame = 0;
  private _theme = new MutationObserver(() => {
    this._charts.redraw();
    this._system.redraw();
  });
}
