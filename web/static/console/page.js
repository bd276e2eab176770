// What every page needs: copy buttons, the theme switch, menus that close, local times.

function copyText(button) {
  const target = button.dataset.copyTarget;
  return target ? document.querySelector(target).textContent.trim() : button.dataset.copy;
}

async function copy(button) {
  await navigator.clipboard.writeText(copyText(button));
  button.dataset.copied = "";
  const label = button.getAttribute("aria-label");
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    delete button.dataset.copied;
    button.setAttribute("aria-label", label);
  }, 1600);
}

function chooseTheme(theme) {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  for (const button of document.querySelectorAll("[data-theme-form] button")) {
    button.setAttribute("aria-pressed", String(button.value === theme));
  }
  document.dispatchEvent(new CustomEvent("penstock:theme"));
}

function closeMenus(except) {
  for (const menu of document.querySelectorAll("details[data-menu][open]")) {
    if (menu !== except) menu.open = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-target]");
  if (button) copy(button);
  closeMenus(event.target.closest("details[data-menu]"));
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = event.target.closest("details[data-menu][open]");
  closeMenus(null);
  menu?.querySelector("summary").focus();
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-theme-form]") || !event.submitter) return;
  event.preventDefault();
  chooseTheme(event.submitter.value);
});

document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-submit-on-change]");
  if (form) form.requestSubmit();
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.dispatchEvent(new CustomEvent("penstock:theme"));
});
