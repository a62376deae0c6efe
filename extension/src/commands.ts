import { ReadonlyJSONObject } from '@lumino/coreutils';

/**
 * The ids of all commands. Each is registered by the feature whose name stands above it.
 */
export namespace CommandIDs {
  // clusters/
  export const showClusters = 'llmops:show-clusters';
  export const newCluster = 'llmops:new-cluster';
  export const scaleCluster = 'llmops:scale-cluster';
  export const suspendCluster = 'llmops:suspend-cluster';
  export const resumeCluster = 'llmops:resume-cluster';
  export const keepCluster = 'llmops:keep-cluster';
  export const deleteCluster = 'llmops:delete-cluster';
  export const insertClusterCode = 'llmops:insert-cluster-code';

  export const attachKernels = 'llmops:attach-kernels';

  // dashboard/ {cluster, page?, submissionId?, mode?, ref?}
  export const openDashboard = 'llmops:open-dashboard';
  export const openLayout = 'llmops:open-layout';

  // run/ {runId}; without it the run that is shown or chosen
  export const openRun = 'llmops:open-run';
  export const stopRun = 'llmops:stop-run';
  export const moveRun = 'llmops:move-run';
  export const retryRun = 'llmops:retry-run';
  export const resubmitRun = 'llmops:resubmit-run';
  export const starRun = 'llmops:star-run';
  export const renameRun = 'llmops:rename-run';
  export const deleteRun = 'llmops:delete-run';
  export const openRunFolder = 'llmops:open-run-folder';
  export const copyRunId = 'llmops:copy-run-id';
  export const insertRunCode = 'llmops:insert-run-code';
  export const openRunJob = 'llmops:open-run-job';
  // {runIds}
  export const compareRuns = 'llmops:compare-runs';

  // runs/
  export const showRuns = 'llmops:show-runs';
  // runTable/ {where?, sort?, group?}
  export const showRunTable = 'llmops:show-run-table';

  // configs/ {path?}
  export const checkConfig = 'llmops:check-config';
  export const showData = 'llmops:show-data';
  export const showPlan = 'llmops:show-plan';
  export const submitConfig = 'llmops:submit-config';
  export const submitScript = 'llmops:submit-script';
  export const submitCell = 'llmops:submit-cell';
  export const startTemplate = 'llmops:start-template';
  export const newConfig = 'llmops:new-config';
  export const showConfigProblems = 'llmops:show-config-problems';
  export const completeConfig = 'llmops:complete-config';

  // help/
  export const help = 'llmops:help';
}

export const CATEGORY = 'LLM Training';

/**
 * What a command's `describedBy` says of its arguments; a text describes a string.
 */
export function argsOf(
  properties: Record<string, string | ReadonlyJSONObject> = {}
): { args: ReadonlyJSONObject } {
  const described = Object.entries(properties).map(([name, property]) => [
    name,
    typeof property === 'string'
      ? { type: 'string', description: property }
      : property
  ]);
  return {
    args: { type: 'object', properties: Object.fromEntries(described) }
  };
}
