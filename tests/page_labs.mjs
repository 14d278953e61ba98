// What the page's labs compute, for tests/test_page_labs.py: reads inputs as JSON, prints outputs as JSON.
import { predict, slowest } from "../docs/_static/labs/model.js";
import { numbers, ring } from "../docs/_static/labs/steps.js";
import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf8"));
const mean = ([values, weights]) => values.reduce((sum, value, k) => sum + value * weights[k], 0);
console.log(JSON.stringify({
  predicted: given.predict.map(({ job, link, algorithm, workers }) => predict(job, { link, algorithm }, workers)),
  slowest: given.slowest.map(([workers, spread]) => mean(slowest(workers, spread))),
  numbers: given.numbers.map(([replicas, examples, divisor]) => numbers(given.losses, replicas, examples, divisor)),
  rings: given.rings.map((workers) => ring(workers)),
}));
