import { RunRow } from '../../wire';

/** A run that goes on, as the list has it. */
export function row(run_id: string, more: Partial<RunRow> = {}): RunRow {
  return {
    run_id,
    name: 'lora',
    title: '',
    starred: false,
    cluster: 'local',
    created_s: 100,
    state: 'RUNNING',
    attempt: 1,
    reason: '',
    message: '',
    remedy: '',
    progress: null,
    fraction: null,
    eta_s: null,
    eta_is_least: false,
    figures: [],
    curve: [],
    curve_label: '',
    hidden: false,
    kind: 'toy',
    actions: ['stop'],
    parent: null,
    submission_id: null,
    ...more
  } as RunRow;
}
