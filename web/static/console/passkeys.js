// Passkeys: what the server asks for goes to the browser, what the browser says goes into the form.

const bytes = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
const named = (list) => list?.map((each) => ({ ...each, id: bytes(each.id) }));

async function create(asked) {
  const publicKey = {
    ...asked,
    challenge: bytes(asked.challenge),
    user: { ...asked.user, id: bytes(asked.user.id) },
    excludeCredentials: named(asked.excludeCredentials),
    authenticatorSelection: {
      residentKey: "required",
      requireResidentKey: true,
      userVerification: "required",
    },
  };
  const made = await navigator.credentials.create({ publicKey });
  return told(made, {
    clientDataJSON: text(made.response.clientDataJSON),
    attestationObject: text(made.response.attestationObject),
    transports: made.response.getTransports?.() ?? [],
  });
}

async function get(asked) {
  const publicKey = {
    ...asked,
    challenge: bytes(asked.challenge),
    allowCredentials: named(asked.allowCredentials),
  };
  const shown = await navigator.credentials.get({ publicKey });
  const { authenticatorData, clientDataJSON, signature, userHandle } = shown.response;
  return told(shown, {
    authenticatorData: text(authenticatorData),
    clientDataJSON: text(clientDataJSON),
    signature: text(signature),
    userHandle: userHandle ? text(userHandle) : null,
  });
}

function told(credential, response) {
  return {
    type: credential.type,
    id: credential.id,
    rawId: text(credential.rawId),
    authenticatorAttachment: credential.authenticatorAttachment,
    response,
    clientExtensionResults: credential.getClientExtensionResults(),
  };
}

async function options(form) {
  const kept = document.getElementById(form.dataset.passkeyOptions ?? "");
  if (kept) return JSON.parse(kept.textContent);
  const reply = await fetch(form.action, { headers: { accept: "application/json" } });
  if (!reply.ok) throw new Error("The server did not answer.");
  return reply.json();
}

async function prove(form) {
  const wanted = await options(form);
  const credential = form.dataset.passkey === "create"
    ? await create(wanted.creation_options.publicKey)
    : await get(wanted.request_options.publicKey);
  form.querySelector("[name=credential]").value = JSON.stringify(credential);
  form.submit();
}

function words(error) {
  if (error.name === "InvalidStateError") return "This device has a passkey for you already.";
  if (error.name === "NotAllowedError") return "No passkey was used. Try again, or sign in another way.";
  return `That did not work: ${error.message}`;
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!window.PublicKeyCredential) continue;
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const told = form.querySelector("[data-passkey-error]");
    told.hidden = true;
    try {
      await prove(form);
    } catch (error) {
      told.textContent = words(error);
      told.hidden = false;
    }
  });
}
