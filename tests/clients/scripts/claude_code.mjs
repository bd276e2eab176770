// Claude Code, over Messages.

import { tryAgent } from "./agents.mjs";
import * as trying from "./trying.mjs";

await tryAgent((home, folder, prompt) => ({
  program: "claude",
  arguments: ["-p", prompt, "--model", trying.MODEL, "--allowedTools", "Read"],
  environment: {
    ANTHROPIC_BASE_URL: trying.BASE_URL.replace(/\/v1$/, ""),
    ANTHROPIC_API_KEY: trying.API_KEY,
    ANTHROPIC_SMALL_FAST_MODEL: trying.MODEL,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    IS_SANDBOX: "1",
  },
}));
