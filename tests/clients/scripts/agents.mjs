// How an agent is tried: in a folder and a home of its own it is asked to read a file, which takes a
// call of its tool and a second turn.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as trying from "./trying.mjs";

const SECRET = "The penstock is open.";
const SECONDS_MAX = 120;
export const HERE = dirname(fileURLToPath(import.meta.url));

// Runs `command(home, folder, prompt)`: the program, its arguments and its environment.
export async function tryAgent(command) {
  async function tools() {
    const root = mkdtempSync(join(tmpdir(), "penstock-agent-"));
    const [home, folder] = [join(root, "home"), join(root, "work")];
    [home, folder].forEach((each) => mkdirSync(each));
    writeFileSync(join(folder, "secret.txt"), `${SECRET}\n`);
    const prompt = `The folder is ${folder}; what does secret.txt in it say?`;
    const { program, arguments: given, environment } = command(home, folder, prompt);
    try {
      const done = spawnSync(join(HERE, "node_modules", ".bin", program), given, {
        cwd: folder,
        env: { PATH: process.env.PATH, HOME: home, ...environment },
        encoding: "utf8",
        input: "",
        timeout: SECONDS_MAX * 1000,
      });
      trying.check(done.status === 0, `ended with ${done.status}: ${(done.stderr + done.stdout).slice(-250)}`);
      trying.holds(done.stdout, `It says: ${SECRET}`);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  }

  await trying.tryAll(tools);
}
