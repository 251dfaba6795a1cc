/** PlanningError: what the person who asks for a plan or a replay can mend, told in one line; exit code 2. */
export class PlanningError extends Error {
  override name = 'PlanningError';
}
