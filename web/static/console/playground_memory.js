// What a person typed and was told in the playground, for as long as the tab is open.

const PREFIX = "playground:";

function nameFor(person) {
  return `${PREFIX}${person}:${window.location.pathname}`;
}

export function remember(person, state) {
  try {
    sessionStorage.setItem(nameFor(person), JSON.stringify(state));
  } catch {
    // A conversation may be too long to keep; the page works without.
    sessionStorage.removeItem(nameFor(person));
  }
}

// Returns nothing of anybody else, and forgets what the tab knew of them.
export function recall(person) {
  for (const name of Object.keys(sessionStorage)) {
    if (name.startsWith(PREFIX) && !name.startsWith(`${PREFIX}${person}:`)) sessionStorage.removeItem(name);
  }
  return JSON.parse(sessionStorage.getItem(nameFor(person)));
}
