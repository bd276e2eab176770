// The same call in curl, Python and JavaScript.

function quoteForShell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function indent(text, by) {
  return text.replaceAll("\n", `\n${" ".repeat(by)}`);
}

function pythonValue(value) {
  return JSON.stringify(value, null, 4)
    .replace(/(?<=[:[,]\s*)(true|false|null)(?=\s*[,\]}\n])/g,
      (word) => ({ true: "True", false: "False", null: "None" })[word]);
}

function curl(base, body) {
  return `curl ${base}/chat/completions \\
  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d ${quoteForShell(JSON.stringify(body, null, 2))}`;
}

function python(base, { messages, ...rest }) {
  const settings = Object.entries(rest)
    .map(([name, value]) => `    ${name}=${JSON.stringify(value)},\n`).join("");
  return `import os
from openai import OpenAI

client = OpenAI(
    base_url="${base}",
    api_key=os.environ["PENSTOCK_API_KEY"],
)
reply = client.chat.completions.create(
${settings}    messages=${indent(pythonValue(messages), 4)},
)
print(reply.choices[0].message.content)`;
}

function javascript(base, body) {
  return `import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "${base}",
  apiKey: process.env.PENSTOCK_API_KEY,
});
const reply = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
console.log(reply.choices[0].message.content);`;
}

export const snippets = { curl, python, javascript };
