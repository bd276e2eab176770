// What a person typed and was told in the playground, for as long as the tab is open.

const PREFIX = "playground:";

function nameFor(person) {
  return `${PREFIX}${person}:${window.location.pathname}`;
}

// A browser may block storage, and a conversation may be too long to keep; the page works without.
function attempt(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

export function remember(person, state) {
  const isKept = attempt(() => {
    sessionStorage.setItem(nameFor(person), JSON.stringify(state));
    return true;
  });
  if (!isKept) attempt(() => sessionStorage.removeItem(nameFor(person)));
}

// Returns nothing of anybody else, and forgets what the tab knew of them.
export function recall(person) {
  return attempt(() => {
    for (const name of Object.keys(sessionStorage)) {
      if (name.startsWith(PREFIX) && !name.startsWith(`${PREFIX}${person}:`)) sessionStorage.removeItem(name);
    }
    return JSON.parse(sessionStorage.getItem(nameFor(person)));
  });
}
