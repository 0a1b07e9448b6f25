/** Steps at either side of the one that a mean is taken of. */
export const REACH = 6;

/**
 * The mean of the losses around one. It has as many from before it as from after it, so that it does not lag: where a
 * loss falls, a mean of those before alone would lie above the validation loss.
 */
export function meanAt(losses: readonly number[], at: number): number {
  const reach = Math.min(REACH, at, losses.length - 1 - at);
  const around = losses.slice(at - reach, at + reach + 1);
  return around.reduce((sum, loss) => sum + loss, 0) / around.length;
}
