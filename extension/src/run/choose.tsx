import { Dialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import * as React from 'react';

import { matches, nameWithId } from '../runs/model';
import { IRunsModel } from '../tokens';
import { trans } from '../trans';
import { StateBadge } from '../ui/parts';

const MAX_COMPARED = 8;
const MAX_SHOWN = 200;

export function runIdsOf(args: ReadonlyPartialJSONObject): string[] {
  const given = Array.isArray(args.runIds) ? args.runIds : [];
  const ids = given.filter((id): id is string => typeof id === 'string');
  return [...new Set(ids)].slice(0, MAX_COMPARED);
}

/**
 * Ask which run, or which runs to compare; empty when it was cancelled.
 */
export async function chooseRuns(
  runs: IRunsModel,
  how: { several: boolean; begin?: readonly string[] }
): Promise<string[]> {
  const { several, begin = [...runs.selected] } = how;
  const body = new Choice(runs, several, new Set(several ? begin : []));
  const result = await new Dialog<string[]>({
    title: several ? trans.__('Compare which runs?') : trans.__('Which run?'),
    body,
    buttons: [
      Dialog.cancelButton(),
      Dialog.okButton({
        label: several ? trans.__('Compare') : trans.__('Open')
      })
    ],
    focusNodeSelector: 'input[type=search]'
  }).launch();
  return result.button.accept ? (result.value ?? []) : [];
}

class Choice extends ReactWidget implements Dialog.IBodyWidget<string[]> {
  constructor(
    private runs: IRunsModel,
    private several: boolean,
    private chosen: Set<string>
  ) {
    super();
    this.begin = new Set(chosen);
    this.addClass('llmops-choose');
  }

  getValue(): string[] {
    return [...this.chosen];
  }

  protected override render(): JSX.Element {
    const { several } = this;
    // One that was chosen before may be older than those that are listed.
    const older = [...this.begin]
      .map(runId => this.runs.find(runId))
      .filter(run => run !== undefined)
      .filter(run => !this.runs.runs.includes(run));
    const found = [...older, ...this.runs.runs].filter(run =>
      matches(run, this._filter)
    );
    return (
      <>
        <input
          className="jp-mod-styled"
          type="search"
          aria-label={trans.__('Filter runs')}
          placeholder={trans.__('Filter by name, cluster, state')}
          value={this._filter}
          onChange={event => {
            this._filter = event.target.value;
            this.update();
          }}
        />
        <ul>
          {found.slice(0, MAX_SHOWN).map(run => (
            <li key={run.run_id}>
              <label title={run.run_id}>
                <input
                  type={several ? 'checkbox' : 'radio'}
                  name="llmops-choose"
                  checked={this.chosen.has(run.run_id)}
                  disabled={
                    several &&
                    this.chosen.size >= MAX_COMPARED &&
                    !this.chosen.has(run.run_id)
                  }
                  onChange={event => {
                    this.take(run.run_id, event.target.checked);
                  }}
                />
                <span>{nameWithId(run)}</span>
                <StateBadge state={run.state} />
              </label>
            </li>
          ))}
        </ul>
        {several && this.chosen.size < 2 && (
          <p>{trans.__('Choose two to eight runs.')}</p>
        )}
      </>
    );
  }

  private take(runId: string, isChosen: boolean): void {
    if (!this.several) {
      this.chosen.clear();
    }
    if (isChosen) {
      this.chosen.add(runId);
    } else {
      this.chosen.delete(runId);
    }
    this.update();
  }

  private begin: ReadonlySet<string>;
  private _filter = '';
}
