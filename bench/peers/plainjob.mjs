// plainjob on better-sqlite3: its worker in one process, which takes one job at a time.

import Database from "better-sqlite3";
import { randomBytes } from "node:crypto";
import { readSync } from "node:fs";
import { better, defineQueue, defineWorker, JobStatus } from "plainjob";

const TYPE = "mail";
const [what, place, text] = process.argv.slice(2);
const options = JSON.parse(text);

// Its default logger writes several lines to the terminal for each job.
const nothing = () => {};
const logger = { error: nothing, warn: nothing, info: nothing, debug: nothing };

const queue = defineQueue({ connection: better(new Database(place)), logger });

const now = () => process.hrtime.bigint();
const seconds = (begin) => Number(now() - begin) / 1e9;
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function payloads(count, size = 0) {
  const body = size ? textOf(size) : "";
  return Array.from({ length: count }, (_, number) =>
    size ? { user: 100_000 + number, body } : { user: 100_000 + number, kind: "welcome" },
  );
}

function textOf(size) {
  return randomBytes(size).toString("base64").slice(0, size);
}

// A number as text: nanoseconds are more than a double can hold exactly.
const sent = (milliseconds = 0) => ({ sent: String(now() + BigInt(milliseconds) * 1_000_000n) });

// Microseconds of CPU, not of the clock: others may want the core.
const used = () => process.cpuUsage().user + process.cpuUsage().system;

function burn(milliseconds) {
  const ends = used() + milliseconds * 1e3;
  for (let number = 0; used() < ends; ) {
    for (let step = 0; step < 1_000; step++) number = (number * 31 + 7) % 1_000_003;
  }
}

function fill() {
  const each = options.size >= 10_000 ? 100 : 1_000;
  for (let left = options.jobs; left > 0; left -= each) {
    queue.addMany(TYPE, payloads(Math.min(each, left), options.size));
  }
  return null;
}

async function add() {
  const callers = options.callers ?? 1;
  const share = payloads(Math.floor(options.jobs / callers), options.size);
  for (const data of payloads(200)) queue.add(TYPE, data);
  const caller = async () => {
    for (const data of share) await queue.add(TYPE, data);
  };
  const begin = now();
  await Promise.all(Array.from({ length: callers }, caller));
  return seconds(begin);
}

function addBulk() {
  const jobs = payloads(options.list ?? 1_000, options.size);
  queue.addMany(TYPE, payloads(1_000));
  const begin = now();
  for (let done = 0; done < options.jobs; done += jobs.length) queue.addMany(TYPE, jobs);
  return seconds(begin);
}

async function addSlowly() {
  const begin = now();
  for (let number = 0; number < options.jobs; number++) {
    const pause = options.rate ? number / options.rate - seconds(begin) : options.pace;
    await sleep(Math.max(0, pause * 1e3));
    queue.add(TYPE, sent());
  }
  return null;
}

async function addDelayed() {
  for (let number = 0; number < options.jobs; number++) {
    queue.add(TYPE, sent(options.delay), { delay: options.delay });
    await sleep(5);
  }
  return null;
}

async function work() {
  const delays = [];
  let handled = 0;
  let stop;

  function handle(job) {
    if (options.record) delays.push(Number(now() - BigInt(JSON.parse(job.data).sent)));
    if (options.cpu_ms) burn(options.cpu_ms);
    if (++handled === options.jobs) stop();
  }

  const workers = Array.from({ length: options.concurrency ?? 1 }, () =>
    defineWorker(TYPE, handle, { queue, logger, pollIntervall: options.poll ?? 1_000 }),
  );
  stop = () => void workers.map((worker) => worker.stop());

  process.stdout.write("ready\n");
  readSync(0, Buffer.alloc(16));
  const begin = now();
  process.stdin.resume().on("end", stop);
  await Promise.all(workers.map((worker) => worker.start()));
  const found = { seconds: seconds(begin), handled };
  process.stdin.destroy();
  return options.record ? { ...found, delays } : found;
}

function count() {
  return {
    waiting: queue.countJobs({ status: JobStatus.Pending }),
    finished: queue.countJobs({ status: JobStatus.Done }),
  };
}

const actions = {
  install: () => null,
  fill,
  add,
  add_bulk: addBulk,
  add_slowly: addSlowly,
  add_delayed: addDelayed,
  work,
  count,
};

const answer = await actions[what]();
queue.close();
console.log(JSON.stringify(answer));
