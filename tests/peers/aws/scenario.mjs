// SPDX-License-Identifier: Apache-2.0
// A scenario by the AWS SDK for JavaScript; see scenario.py for what a step says.
//   scenario.mjs FOLDER-OF-node_modules SCENARIO ACCOUNT [NAME=VALUE...]
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [folder, file, account, ...given] = process.argv.slice(2);
const pause = 1000 * Number(process.env.SCENARIO_PAUSE ?? "0.2"), patience = 1000 * Number(process.env.FAIRLEAD_PATIENCE ?? "2");
const require = createRequire(folder + "/");
const services = { sagemaker: [require("@aws-sdk/client-sagemaker"), "SageMakerClient"], sts: [require("@aws-sdk/client-sts"), "STSClient"], iam: [require("@aws-sdk/client-iam"), "IAMClient"], eks: [require("@aws-sdk/client-eks"), "EKSClient"], logs: [require("@aws-sdk/client-cloudwatch-logs"), "CloudWatchLogsClient"] };

const part = (value, path) => path.split(".").reduce((inner, name) => inner?.[name], value);
const filled = (value, names) =>
  typeof value === "string" ? value.replace(/\$(\w+)/g, (_, name) => names[name])
  : Array.isArray(value) ? value.map((inner) => filled(inner, names))
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, filled(inner, names)]))
  : value;
const text = (value) => JSON.stringify(value, (_, inner) => (inner && typeof inner === "object" && !Array.isArray(inner) ? Object.fromEntries(Object.entries(inner).sort()) : inner));
const same = (got, want) => {
  if (typeof got !== "string" || typeof want !== "string") return text(got) === text(want);
  const pattern = want.split("*").map((piece) => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*");
  return new RegExp(`^${pattern}$`, "s").test(got);
};
const differences = (answer, wanted = {}) => Object.entries(wanted).filter(([path, want]) => !same(part(answer, path), want)).map(([path, want]) => `${path}: want ${text(want)}, got ${text(part(answer, path))}`);

const names = { account, ...Object.fromEntries(given.map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)])) };
let credentials;
let number = 0;
for (const raw of JSON.parse(readFileSync(file, "utf8"))) {
  const step = { ...raw };
  for (const key of ["input", "expect", "until", "message"]) if (key in step) step[key] = filled(step[key], names);
  const title = `${++number} ${step.operation}`;
  const [library, client] = services[step.service];
  const end = Date.now() + (step.seconds ?? 30) * patience;
  let answer, refused, waits;
  for (;;) {
    answer = {}, refused = undefined;
    try {
      answer = await new library[client](credentials ? { credentials } : {}).send(new library[step.operation + "Command"](step.input));
    } catch (error) {
      refused = error;
    }
    waits = refused ? [] : step.error && step.until ? [`want ${step.error}, got ${text(answer)}`] : differences(answer, step.until);
    if (waits.length === 0 || Date.now() > end) break;
    await new Promise((done) => setTimeout(done, pause));
  }
  const wrong = [...waits];
  if (step.error) {
    if (!refused) wrong.push(`want ${step.error}, got ${text(answer)}`);
    else if (![step.error, step.error + "Exception"].includes(refused.name) || !refused.message.includes(step.message ?? "")) wrong.push(`want ${step.error} ${step.message ?? ""}, got ${refused.name}: ${refused.message}`);
    else if (!refused.$metadata?.requestId) wrong.push("a refusal without a request id");
  } else if (refused) wrong.push(`${refused.name}: ${refused.message}`);
  else wrong.push(...differences(answer, step.expect));
  if (wrong.length > 0) {
    console.error(`FAIL ${title}: ${wrong.join("; ")}`);
    process.exit(1);
  }
  for (const [name, path] of Object.entries(step.save ?? {})) names[name] = part(answer, path);
  if (step.become === "first") credentials = undefined;
  else if (step.become) {
    const given = part(answer, step.become);
    credentials = { accessKeyId: given.AccessKeyId, secretAccessKey: given.SecretAccessKey, sessionToken: given.SessionToken };
  }
  console.log(`ok    ${title}`);
}
