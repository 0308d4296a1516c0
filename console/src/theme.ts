// Runs before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("plangate-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is off: the theme of the system.
}
export {};
