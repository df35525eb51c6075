// BullMQ on Node: one worker in this process, its jobs kept when they are done (its default).
//
// The protocol is that of protocol.py: `node bullmq_node.mjs WHAT PLACE OPTIONS`, JSON in and out.

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const QUEUE = "bench";
const NAME = "mail";
const FILL = 1_000; // jobs per call when a queue is filled
const WARM_UP = { add: 200, add_bulk: 1_000 };
const BETWEEN_DELAYED = 5; // milliseconds

const nanoseconds = () => Number(process.hrtime.bigint());
const secondsSince = (begin) => (nanoseconds() - begin) / 1e9;

// --- the work that handlers do ----------------------------------------------------------------

function spin(rounds) {
  let number = 0;
  for (let round = 0; round < rounds; round += 1) number = (number * 31 + 7) % 1_000_003;
  return number;
}

let spinsAMillisecond = 0;

// How many rounds are a millisecond of CPU is found out once, when nothing else runs: a clock on
// the wall would count the time of others as ours, and Node has none for a thread.
function learnToBurn() {
  for (let trial = 0; trial < 30; trial += 1) {
    const begin = performance.now();
    spin(20_000);
    spinsAMillisecond = Math.max(spinsAMillisecond, 20_000 / (performance.now() - begin));
  }
}

const burn = (milliseconds) => spin(milliseconds * spinsAMillisecond);

function failAtFirst(job) {
  if (job.attemptsMade === 0) throw new Error("the first attempt fails");
}

// A sandboxed processor is a file with a default export: this one, loaded by BullMQ's children.
const told = process.env.BENCH_SANDBOX ? JSON.parse(process.env.BENCH_SANDBOX) : {};
if (told.cpu_ms > 0) learnToBurn();

export default async function processInSandbox(job) {
  if (told.cpu_ms > 0) burn(told.cpu_ms);
  if (told.fails) failAtFirst(job);
}

// --- connections ------------------------------------------------------------------------------

// BullMQ takes either client; connections made here are closed here.
async function connecting(place, client) {
  const made = [];
  if (client === "node-redis") {
    const { createClient } = await import("redis");
    return {
      connection: async () => {
        const connection = createClient({ url: place });
        await connection.connect();
        made.push(() => connection.close());
        return connection;
      },
      close: () => Promise.all(made.map((close) => close().catch(() => undefined))),
    };
  }
  const { hostname, port } = new URL(place);
  return { connection: async () => ({ host: hostname, port: Number(port) }), close: async () => {} };
}

// --- jobs -------------------------------------------------------------------------------------

function payloads(count, size = 0) {
  const rest = size > 0 ? { body: textOf(size) } : { kind: "welcome" };
  return Array.from({ length: count }, (_, number) => ({ user: 100_000 + number, ...rest }));
}

function textOf(size) {
  return randomBytes(size).toString("base64").slice(0, size);
}

const entries = (jobs, opts = {}) => jobs.map((data) => ({ name: NAME, data, opts }));

async function addInLists(queue, all, size) {
  for (let start = 0; start < all.length; start += size) {
    await queue.addBulk(all.slice(start, start + size));
  }
}

// --- what can be asked for --------------------------------------------------------------------

async function fill(queue, { jobs, size = 0, fails = false }) {
  const each = size < 10_000 ? FILL : FILL / 10;
  await addInLists(queue, entries(payloads(jobs, size), fails ? { attempts: 2 } : {}), each);
  return null;
}

async function add(queue, { jobs, callers = 1, size = 0 }) {
  for (const data of payloads(WARM_UP.add, size)) await queue.add(NAME, data);
  const waiting = payloads(jobs, size).values(); // one iterator: each caller takes the next
  async function call() {
    for (const data of waiting) await queue.add(NAME, data);
  }
  const begin = nanoseconds();
  await Promise.all(Array.from({ length: callers }, call));
  return secondsSince(begin);
}

async function addBulk(queue, { jobs, list = 1_000, size = 0 }) {
  await addInLists(queue, entries(payloads(WARM_UP.add_bulk, size)), list);
  const all = entries(payloads(jobs, size));
  const begin = nanoseconds();
  await addInLists(queue, all, list);
  return secondsSince(begin);
}

async function addSlowly(queue, { jobs, pace = 0, rate = 0 }) {
  const begin = performance.now();
  for (let number = 0; number < jobs; number += 1) {
    await queue.add(NAME, { sent: nanoseconds() });
    if (rate > 0) {
      const early = begin + ((number + 1) * 1_000) / rate - performance.now();
      if (early > 0) await sleep(early);
    } else {
      await sleep(pace * 1_000);
    }
  }
  return null;
}

async function addDelayed(queue, { jobs, delay }) {
  for (let number = 0; number < jobs; number += 1) {
    await queue.add(NAME, { sent: nanoseconds() + delay * 1e6 }, { delay });
    await sleep(BETWEEN_DELAYED);
  }
  return null;
}

async function count(queue) {
  const counts = await queue.getJobCounts("wait", "active", "delayed", "completed");
  return { waiting: counts.wait + counts.active + counts.delayed, finished: counts.completed };
}

async function work(Worker, connections, options) {
  const { concurrency = 1, cpu_ms = 0, jobs = 0, sandbox = "" } = options;
  const { fails = false, record = false } = options;
  const delays = [];
  let handled = 0;
  let settled = 0;
  let last = 0;

  function handle(job) {
    if (record) delays.push(nanoseconds() - job.data.sent);
    handled += 1;
    if (cpu_ms > 0) burn(cpu_ms);
    if (fails) failAtFirst(job);
  }

  if (cpu_ms > 0) learnToBurn();
  process.env.BENCH_SANDBOX = JSON.stringify({ cpu_ms, fails }); // children inherit it
  const processor = sandbox ? fileURLToPath(import.meta.url) : async (job) => handle(job);
  const worker = new Worker(QUEUE, processor, {
    connection: await connections.connection(),
    concurrency,
    autorun: false,
    useWorkerThreads: sandbox === "threads",
  });
  await worker.waitUntilReady();

  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  // An attempt that failed is settled too: it has been put back, or kept as failed.
  function settle() {
    settled += 1;
    last = nanoseconds();
    if (settled === jobs) finish();
  }
  worker.on("completed", settle);
  worker.on("failed", settle);
  worker.on("error", (error) => console.error(error));

  const commands = createInterface({ input: process.stdin });
  const closed = once(commands, "close");
  console.log("ready");
  await once(commands, "line");
  const begin = nanoseconds();
  worker.run();
  await Promise.race([finished, closed]);
  const enough = last;
  await worker.close(); // waits for jobs that run
  commands.close();
  process.stdin.destroy();
  const end = jobs > 0 && settled === jobs ? enough : last || nanoseconds();
  return { seconds: (end - begin) / 1e9, handled: sandbox ? settled : handled, delays };
}

// --- the command line -------------------------------------------------------------------------

const ON_A_QUEUE = { fill, add, add_bulk: addBulk, add_slowly: addSlowly, add_delayed: addDelayed };

async function carryOut(what, place, options) {
  if (what === "install") return null; // Redis has no tables
  const { Queue, Worker } = await import("bullmq");
  const connections = await connecting(place, options.client);
  try {
    if (what === "work") return await work(Worker, connections, options);
    const queue = new Queue(QUEUE, { connection: await connections.connection() });
    await queue.waitUntilReady();
    const answer = await { ...ON_A_QUEUE, count }[what](queue, options);
    await queue.close();
    return answer;
  } finally {
    await connections.close();
  }
}

if (isMainThread && process.argv[1] === fileURLToPath(import.meta.url)) {
  const [what, place, options] = process.argv.slice(2);
  console.log(JSON.stringify(await carryOut(what, place, JSON.parse(options ?? "{}"))));
}
