// Give pi a task over its RPC mode, and end it when nothing more comes: `pi -p` ends before it goes on from a summary.
//
//     node pi_client.mjs TASK PROGRAM [ARGUMENT ...]
import { spawn } from "node:child_process";

const SETTLED_MS = 500; // it begins to sum up, or to try again, at once
const BEGINS = ["agent_start", "compaction_start", "auto_retry_start"];

const [task, program, ...given] = process.argv.slice(2);
const pi = spawn(program, given, { stdio: ["pipe", "pipe", "inherit"] });
pi.on("error", (error) => fail(error.message));
pi.on("exit", (code) => process.exit(failed ? 1 : (code ?? 1)));
pi.stdin.on("error", () => {}); // it has ended
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => pi.kill(signal));

let rest = "";
pi.stdout.setEncoding("utf8").on("data", (text) => {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) heard(JSON.parse(line));
});
pi.stdin.write(`${JSON.stringify({ type: "prompt", message: task })}\n`);

let failed, over, settled;
function heard(said) {
  if (said.type === "response") failed = said.error;
  if (said.type === "message_end" && said.message.role === "assistant") failed = said.message.errorMessage;
  if (said.type === "compaction_end" && said.errorMessage) console.error(said.errorMessage);
  if (BEGINS.includes(said.type)) over = false;
  if (said.type === "agent_end" || (said.type === "compaction_end" && !said.willRetry)) over = true;
  if (said.type === "response" && !said.success) over = true;
  clearTimeout(settled);
  if (over) settled = setTimeout(() => pi.stdin.end(), SETTLED_MS);
}

process.on("exit", () => failed && console.error(failed));
function fail(why) {
  console.error(why);
  process.exit(1);
}
