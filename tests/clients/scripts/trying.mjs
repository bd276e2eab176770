// How the scripts here tell what works: a line of JSON per feature (see trying.py).
// A feature is a function; it returns, or throws where something is not as it must be.

export const { BASE_URL, API_KEY, MODEL, EMBEDDING_MODEL } = process.env;
export const SUM = "What is 2 + 3?", SUM_RESULT = "5";
export const OTHER_SUM = "What is 4 + 4?", OTHER_RESULT = "8";
export const PERSON = "Make a JSON object with name Anna and age 31.";
export const WEATHER = "What is the weather in Rome?";
export const DEGREES = "12 degrees";
export const WEATHER_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const DETAIL_CHARACTERS = 300;

export function check(claim, words) {
  if (!claim) throw new Error(words);
}

// Returns what the tool says; it must be asked about the right city.
export function weather(city) {
  check(city === "Rome", `called with ${JSON.stringify(city)}`);
  return DEGREES;
}

export function holds(text, wanted) {
  check((text ?? "").includes(wanted), `${wanted} is not in ${JSON.stringify(text)}`);
}

export function isPerson(value) {
  check(value.name === "Anna" && value.age === 31, `got ${JSON.stringify(value)}`);
}

export function areVectors([first, second]) {
  check(first.length > 8 && first.length === second.length, "no vectors");
  check(first.some((value, place) => value !== second[place]), "the same vector twice");
}

// Checks that an error of the client's names the field; returns how the client tells it.
export function refused(error, kind, field) {
  check(error instanceof kind, `another error: ${error}`);
  check(error.message.includes(field), `${field} is not named: ${error.message}`);
  return `${kind.name}: ${field}`;
}

export async function caught(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("not refused");
}

export async function tryAll(...features) {
  for (const feature of features) {
    if (feature.name === "embeddings" && !EMBEDDING_MODEL) continue;
    try {
      tell(feature.name, "works", (await feature()) ?? "");
    } catch (error) {
      tell(feature.name, "fails", `${error}`.slice(0, DETAIL_CHARACTERS));
    }
  }
}

function tell(feature, outcome, detail) {
  detail = detail.replace(/\s+/g, " ");
  console.log(`{"feature": ${JSON.stringify(feature)}, "outcome": "${outcome}", "detail": ${JSON.stringify(detail)}}`);
}
