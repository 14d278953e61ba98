// The predictor of dtk/scaling in JavaScript: the same formulas, whose sources are named there. Weak scaling.
// tests/test_page_labs.py compares both over hundreds of inputs.

const POINTS = 2001;
export const TOLERATED = 0.1; // of the ideal; as long as no more is lost, nothing but the computation limits
export const LIMITS = ["compute", "straggler", "bandwidth", "latency", "batch too large"];

export const ALGORITHMS = {
  ring: (n, size) => [2 * (n - 1), (2 * size * (n - 1)) / n],
  halving_doubling: (n, size) => [2 * Math.ceil(Math.log2(n)), (2 * size * (n - 1)) / n],
  tree: (n, size) => [2 * Math.ceil(Math.log2(n)), n === 2 ? size : 2 * size],
};

/** Seconds of an all-reduce of `size` bytes: of the messages in a row, and of the bytes out of the busiest link. */
export function allReduce(workers, size, link, algorithm) {
  if (workers === 1 || size === 0) return { latency: 0, transfer: 0 };
  const [steps, bytes] = ALGORITHMS[algorithm](workers, size);
  return { latency: steps * link.latency, transfer: bytes / link.bandwidth };
}

/** erfc of x from 0 up: the series of erf, and from 2.5 on the continued fraction (Abramowitz and Stegun 7.1.5, 7.1.14). */
export function erfc(x) {
  if (x < 2.5) {
    let term = x, sum = x;
    for (let n = 1; n < 80; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * sum;
  }
  let below = x;
  for (let k = 80; k > 0; k--) below = x + k / 2 / below;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / below;
}

let normal = null; // quantiles, logarithms of their density and of their distribution function
function quantiles() {
  if (normal === null) {
    normal = Array.from({ length: POINTS }, (_, k) => {
      const z = -9 + (22 * k) / (POINTS - 1);
      const tail = 0.5 * erfc(Math.abs(z) / Math.SQRT2);
      return [z, -0.5 * z * z - 0.5 * Math.log(2 * Math.PI), z < 0 ? Math.log(tail) : Math.log1p(-tail)];
    });
  }
  return normal;
}

/** The distribution of the slowest worker's seconds, in units of the mean of one: values, weights that add up to 1. */
export function slowest(workers, spread) {
  if (spread === 0) return [[1], [1]];
  const sigma = Math.sqrt(Math.log1p(spread ** 2));
  const at = quantiles();
  const weights = at.map(([, density, below]) => Math.exp(Math.log(workers) + density + (workers - 1) * below));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return [at.map(([z]) => Math.exp(sigma * z - 0.5 * sigma ** 2)), weights.map((weight) => weight / total)];
}

/** Bytes of each all-reduce, and how much of the backward pass is done when it may begin. */
export function buckets(job) {
  const count = job.pack_bytes > 0 ? Math.max(1, Math.ceil(job.gradient_bytes / job.pack_bytes)) : 1;
  return Array.from({ length: count }, (_, k) => ({
    bytes: job.gradient_bytes / count,
    share: Math.max((k + 1) / count, 1 - job.overlap),
  }));
}

/** A step's seconds and its parts, examples/s, efficiency, what limits: one row of dtk.scaling.prediction.predict. */
export function predict(job, cluster, workers) {
  const compute = job.per_example * job.batch;
  const parts = buckets(job).map((each) => ({
    ...each,
    ...allReduce(workers, each.bytes, cluster.link, cluster.algorithm),
  }));
  const [values, weights] = slowest(workers, job.spread);
  let last = 0, seconds = 0;
  values.forEach((value, k) => {
    const all = value * compute;
    let end = 0;
    for (const part of parts) {
      end = Math.max(end, all * (1 - job.backward) + part.share * all * job.backward) + part.latency + part.transfer;
    }
    last += weights[k] * all;
    seconds += weights[k] * Math.max(end, all);
  });
  const whole = parts.reduce((sum, part) => sum + part.latency + part.transfer, 0);
  const waits = whole ? parts.reduce((sum, part) => sum + part.latency, 0) / whole : 0;
  const total = job.batch * workers;
  const critical = job.critical_batch;
  const row = {
    workers,
    seconds,
    compute,
    straggler: Math.max(0, last - compute),
    latency: Math.max(0, seconds - last) * waits,
    bandwidth: Math.max(0, seconds - last) * (1 - waits),
    throughput: total / seconds,
    ideal: (workers * job.batch) / compute,
    useful: critical ? (job.batch + critical) / (total + critical) : 1,
  };
  row.efficiency = row.throughput / row.ideal;
  row.limit = limit(row, critical && total > critical);
  row.slowed_by = limit(row, false);
  return row;
}

function limit(row, large) {
  if (row.efficiency >= 1 - TOLERATED && !large) return LIMITS[0];
  const lost = {
    compute: 0, // every worker has cores of its own here
    straggler: row.straggler,
    bandwidth: row.bandwidth,
    latency: row.latency,
    "batch too large": large ? row.seconds * (1 / row.useful - 1) : 0,
  };
  return LIMITS.reduce((most, name) => (lost[name] > lost[most] ? name : most));
}
