// The playground's two fields of JSON, tools and an answer's schema, and the calls in an answer.

export const EXAMPLES = {
  tools: [{
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather in a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  }],
  schema: {
    type: "object",
    properties: { name: { type: "string" }, age: { type: "integer" } },
    required: ["name", "age"],
    additionalProperties: false,
  },
};

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function faultOfTools(tools) {
  if (!Array.isArray(tools) || !tools.length) return "A list of tools is wanted: begin with [ and end with ].";
  for (const [place, tool] of tools.entries()) {
    if (tool?.type !== "function") return `Tool ${place + 1} needs "type": "function"; there are no other kinds.`;
    if (!isObject(tool.function)) return `Tool ${place + 1} needs a "function": { … }.`;
    if (typeof tool.function.name !== "string") return `The function of tool ${place + 1} has no "name".`;
    const { parameters } = tool.function;
    if (parameters !== undefined && !isObject(parameters)) return `The "parameters" of ${tool.function.name} are no JSON schema.`;
  }
  return "";
}

function faultOfSchema(schema) {
  return isObject(schema) ? "" : "A JSON schema is an object: begin with { and end with }.";
}

function formatOf(schema) {
  return { type: "json_schema", json_schema: { name: "answer", schema } };
}

const KINDS = {
  tools: { faultOf: faultOfTools, fieldsOf: (tools) => ({ tools }) },
  schema: { faultOf: faultOfSchema, fieldsOf: (schema) => ({ response_format: formatOf(schema) }) },
};

// What the text of one field adds to a call's body, or what is wrong with it.
function read(kind, text) {
  if (!text.trim()) return { fields: {}, fault: "" };
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { fields: {}, fault: `This is not JSON yet: ${error.message}.` };
  }
  const fault = KINDS[kind].faultOf(value);
  return { fields: fault ? {} : KINDS[kind].fieldsOf(value), fault };
}

// One field: says what is wrong once it is left or an example is put in, and no later than it is sent.
export function jsonField(kind) {
  const box = document.getElementById(kind);
  const words = document.getElementById(`${kind}-fault`);
  function check() {
    const { fields, fault } = read(kind, box.value);
    words.textContent = fault;
    words.hidden = !fault;
    box.setAttribute("aria-invalid", String(Boolean(fault)));
    return fault ? null : fields;
  }
  box.addEventListener("change", check);
  box.addEventListener("input", () => { if (!words.hidden) check(); });
  document.querySelector(`[data-example="${kind}"]`).addEventListener("click", () => {
    box.value = JSON.stringify(EXAMPLES[kind], null, 2);
    check();
    box.focus();
    box.setSelectionRange(0, 0);
    box.scrollTop = 0;
  });
  return { box, check };
}

// Calls come in pieces, each with the index of the call it belongs to.
export function addCalls(calls, pieces) {
  for (const { index, id, function: piece } of pieces ?? []) {
    calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    const call = calls[index];
    call.id ||= id ?? "";
    call.function.name += piece?.name ?? "";
    call.function.arguments += piece?.arguments ?? "";
  }
}

// Shows calls with a place for what each tool says; `answered` gets the messages that say it.
export function showCalls(place, calls, answered) {
  const form = document.getElementById("calls").content.firstElementChild.cloneNode(true);
  const boxes = calls.map((call) => {
    const row = document.getElementById("call").content.firstElementChild.cloneNode(true);
    row.querySelector("[data-call]").textContent = `${call.function.name}(${call.function.arguments})`;
    const box = row.querySelector("input");
    box.setAttribute("aria-label", `What ${call.function.name} says`);
    form.querySelector("[data-rows]").append(row);
    return box;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    for (const element of form.elements) element.disabled = true;
    form.querySelector("button").hidden = true;
    answered(calls.map((call, at) => ({ role: "tool", tool_call_id: call.id, content: boxes[at].value })));
  });
  place.replaceChildren(form);
  boxes[0].focus();
  return boxes[0];
}
