// The same call in curl, Python and JavaScript.

function quoteForShell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// JSON, but for Python's own words.
function pythonValue(value, depth) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const list = Array.isArray(value);
  const inner = list
    ? value.map((each) => pythonValue(each, depth + 1))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonValue(each, depth + 1)}`);
  const [open, close] = list ? "[]" : "{}";
  if (!inner.length) return open + close;
  const indent = "    ".repeat(depth);
  return `${open}\n${inner.map((each) => `${indent}    ${each},\n`).join("")}${indent}${close}`;
}

function curl(base, body) {
  return `curl ${base}/chat/completions \\
  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d ${quoteForShell(JSON.stringify(body, null, 2))}`;
}

// An answer made of calls has no text.
function told(body) {
  return body.tools ? "message" : "message.content";
}

function python(base, body) {
  const settings = Object.entries(body)
    .map(([name, value]) => `    ${name}=${pythonValue(value, 1)},\n`).join("");
  return `import os
from openai import OpenAI

client = OpenAI(
    base_url="${base}",
    api_key=os.environ["PENSTOCK_API_KEY"],
)
reply = client.chat.completions.create(
${settings})
print(reply.choices[0].${told(body)})`;
}

function javascript(base, body) {
  return `import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "${base}",
  apiKey: process.env.PENSTOCK_API_KEY,
});
const reply = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
console.log(reply.choices[0].${told(body)});`;
}

export const snippets = { curl, python, javascript };
