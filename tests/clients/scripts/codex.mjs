// Codex, over Responses.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { tryAgent } from "./agents.mjs";
import * as trying from "./trying.mjs";

await tryAgent((home, folder, prompt) => {
  const config = `
model = "${trying.MODEL}"
model_provider = "penstock"
[model_providers.penstock]
name = "Penstock"
base_url = "${trying.BASE_URL}"
env_key = "PENSTOCK_API_KEY"
wire_api = "responses"
`;
  writeFileSync(join(home, "config.toml"), config);
  return {
    program: "codex",
    // The folder is thrown away; a sandbox needs what not every machine has.
    arguments: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
    environment: { CODEX_HOME: home, PENSTOCK_API_KEY: trying.API_KEY },
  };
});
