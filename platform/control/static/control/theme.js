// The admin switches light and dark by a class: tell the charts.

const told = () => document.dispatchEvent(new Event("penstock:theme"));
new MutationObserver(told).observe(document.documentElement, { attributeFilter: ["class"] });
