// One training step on a few numbers (dtk/view/loss_scaling_lab.py), and an all-reduce in a ring, chunk by chunk.

export const DIVISORS = ["global batch", "per-replica batch", "number of replicas"];

/** What a divisor makes of a step: shares of the loss and of the gradient, and one device's. losses: of the examples. */
export function numbers(losses, replicas, examples, divisor) {
  const by = { "global batch": replicas * examples, "per-replica batch": examples, "number of replicas": replicas }[divisor];
  const mine = losses.slice(0, replicas * examples);
  const slopes = mine.map((loss) => -2 * Math.sqrt(loss));
  const sum = (list) => list.reduce((total, value) => total + value, 0);
  const shares = (list) =>
    Array.from({ length: replicas }, (_, k) => sum(list.slice(k * examples, (k + 1) * examples)) / by);
  const [loss, slope] = [shares(mine), shares(slopes)];
  const alone = sum(mine) / mine.length;
  return { shares: loss, slopes: slope, loss: sum(loss), alone, ratio: sum(loss) / alone, slopeAlone: sum(slopes) / mine.length, divisor: by };
}

/**
 * A ring all-reduce of n workers with n chunks: holds[step][worker][chunk] are the workers whose gradient is in it,
 * messages[step - 1] who sent which chunk to whom. In the first n - 1 steps the receiver adds, then it copies.
 */
export function ring(workers) {
  let now = Array.from({ length: workers }, (_, worker) => Array.from({ length: workers }, () => [worker]));
  const holds = [now], messages = [];
  for (let step = 0; step < 2 * (workers - 1); step++) {
    const adds = step < workers - 1;
    const sent = now.map((_, sender) => {
      const chunk = (((sender - step) % workers) + workers) % workers;
      return { sender, receiver: (sender + 1) % workers, chunk, adds };
    });
    const next = now.map((chunks) => chunks.map((parts) => [...parts]));
    for (const { sender, receiver, chunk } of sent) {
      next[receiver][chunk] = adds ? [...now[receiver][chunk], ...now[sender][chunk]].sort((a, b) => a - b) : [...now[sender][chunk]];
    }
    now = next;
    holds.push(now);
    messages.push(sent);
  }
  return { holds, messages };
}
