import { PanelState } from '../wire';

/** The state of a run's panel; one that an older version saved may lack some fields. */
export interface IPanelState extends Partial<PanelState> {
  stop_asked?: boolean;
  /** Counts, so that a panel which already shows "stopping" notices the change. */
  stop_refused?: number;
}

/** About the panel itself: the cluster does not answer, say. */
export interface INotice {
  message: string;
  remedy: string;
}

/** A part of the panel. */
export interface ISection {
  readonly element: HTMLElement;
  update(state: IPanelState): void;
}
