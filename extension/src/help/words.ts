import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { CommandIDs } from '../commands';
import { trans } from '../trans';

/** One thing to do, in the order in which a new user does them. */
export interface IStep {
  label: string;
  about: string;
  command: string;
  args?: ReadonlyPartialJSONObject;
}

export function steps(): IStep[] {
  return [
    {
      label: trans.__('Start a cluster'),
      about: trans.__(
        'on this machine, or on Kubernetes. It keeps running between runs.'
      ),
      command: CommandIDs.newCluster
    },
    {
      label: trans.__('Write a training config'),
      about: trans.__(
        'with every field explained. In a terminal, llmops init --example chat writes one with its data.'
      ),
      command: CommandIDs.newConfig
    },
    {
      label: trans.__('Preview its data'),
      about: trans.__(
        'as the model will see it, before anything starts: Data, above the editor of the config.'
      ),
      command: CommandIDs.showData
    },
    {
      label: trans.__('Submit it'),
      about: trans.__(
        'and watch loss and MFU; change one thing, and submit again.'
      ),
      command: CommandIDs.submitConfig
    },
    {
      label: trans.__('Compare runs'),
      about: trans.__('that you select in the list of runs.'),
      command: CommandIDs.showRuns
    }
  ];
}

/** The words of the screens, as the README explains them. */
export function words(): [string, string][] {
  return [
    [
      trans.__('cluster'),
      trans.__('a Ray cluster, described by a cluster template')
    ],
    [
      trans.__('run'),
      trans.__(
        'one job from submit to its last output; a retry adds an attempt'
      )
    ],
    [
      trans.__('workspace'),
      trans.__('the folder of code and configs that travels with a submission')
    ],
    [trans.__('step'), trans.__('one optimizer step, counted from 1')],
    [
      trans.__('global batch size'),
      trans.__(
        'sequences of one step: micro batch size x gradient accumulation steps x workers'
      )
    ],
    [
      trans.__('MFU'),
      trans.__(
        'model FLOPs utilization: the share of the device\u2019s peak that went into needed arithmetic'
      )
    ],
    [
      trans.__('warm'),
      trans.__(
        'a process that was forked with its libraries loaded; any other is cold'
      )
    ]
  ];
}
